// A filter that the process has from its start ends it for one of the kernel's copies: nobody can ask before. Where the
// user says that there is such a filter none is made.
// harness: environment=CISTERN_SYSTEM_CALLS=few
#include "../inherited_filter.hpp"

int main(int count, char** arguments) {
  if (count > 1) return copies();
  start_again_under_filter(arguments, SECCOMP_RET_KILL_PROCESS);
}
