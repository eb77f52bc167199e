// Forks while another thread copies: the children end, by exit and by _exit, and the copies of the parent are right.
// harness: stages=both
#include <sys/wait.h>

#include <thread>

#include "../program.hpp"
#include "../staging.hpp"

constexpr size_t kBytes = (size_t{3} << 20) + 100;
constexpr int kForks = 30;

static std::atomic<bool> done{false};
static std::atomic<int> copies{0}, wrong{0};

static void copy_all_the_time(unsigned* block) {
  cudaStream_t stream = new_stream();
  std::vector<unsigned char> back(kBytes);
  for (unsigned round = 0; !done; ++round) {
    std::vector<unsigned char> there = pattern(kBytes, round);
    NEED(cudaMemcpyAsync(block, there.data(), kBytes, cudaMemcpyHostToDevice, stream));
    memset(there.data(), 0x55, kBytes);
    NEED(cudaMemcpyAsync(back.data(), block, kBytes, cudaMemcpyDeviceToHost, stream));
    wrong += !has_pattern(back.data(), kBytes, round);
    ++copies;
  }
  NEED(cudaStreamDestroy(stream));
}

int main() {
  alarm(100);
  unsigned* block = device_block(kBytes);
  std::thread copier(copy_all_the_time, block);
  int ended_well = 0;
  for (int i = 0; i < kForks; ++i) {
    const int copies_before = copies;
    while (copies == copies_before) usleep(100);
    usleep(static_cast<unsigned>(i) * 61);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) i % 2 ? exit(0) : _exit(0);
    int status = -1;
    waitpid(child, &status, 0);
    ended_well += status == 0;
  }
  done = true;
  copier.join();
  say("%d of %d children ended well; copies that went wrong: %d", ended_well, kForks, wrong.load());
  NEED(cudaFree(block));
  return finish();
}
