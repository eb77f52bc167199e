// Memory locked by mlockall, present and future: what an allocator reserves and does not need becomes resident. Prints
// VmRSS in KiB after ordinary work in four threads; "not permitted" where it is not.
#include <sys/mman.h>

#include <thread>
#include <vector>

#include "check.hpp"

int main() {
  if (mlockall(MCL_CURRENT | MCL_FUTURE)) return puts("not permitted"), 0;
  auto work = [](uint64_t seed) {
    check::Random random(seed);
    std::vector<void*> blocks;
    for (int i = 0; i < 20000; ++i) {
      if (blocks.size() > 500) {
        free(blocks[i % 500]);
        blocks[i % 500] = malloc(random.below(2000));
      } else {
        blocks.push_back(malloc(random.below(2000)));
      }
    }
    free(malloc(3 << 20));
    for (void* block : blocks) free(block);
  };
  work(1);
  std::vector<std::thread> threads;
  for (uint64_t seed = 2; seed < 5; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
  printf("%ld\n", check::resident_kb());
  return 0;
}
