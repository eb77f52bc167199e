// Where the host pool does not serve either, the clock is read without a system call: with a filter that the process
// has from its start such a call would be its end.
// harness: environment=CISTERN_HOST_POOL=off
// harness: recycles=device
#include "../inherited_filter.hpp"

int main(int count, char** arguments) {
  if (count == 1) start_again_under_filter(arguments, SECCOMP_RET_KILL_PROCESS, {SYS_clock_gettime, SYS_gettimeofday});
  for (int round = 0; round < 100; ++round) NEED(cudaFree(device_block<char>(1 << 20)));
  return finish();
}
