// Bursts and cross-thread frees, as Jansson's rpmalloc benchmark: each thread runs loops that free scattered blocks of
// a working set, allocate new ones with sizes that fall off linearly, and hand whole sets to whichever thread comes by.
#include <atomic>

#include "workload.hpp"

namespace host_bench {
namespace {

constexpr std::size_t kWorkingSet = 2000, kBytesMin = 16, kBytesMax = 16'000, kPassedBlocks = 500;
constexpr unsigned kLoopsAll = 3000, kPerLoop = 700;

struct Passed {
  Block blocks[kPassedBlocks];
};

std::size_t linear_size(Random& random) {
  const std::size_t one = random.between(kBytesMin, kBytesMax), other = random.between(kBytesMin, kBytesMax);
  return one < other ? one : other;
}

void loops(std::atomic<Passed*>& passed, Random& random, unsigned count) {
  std::vector<Block> set(kWorkingSet);
  std::size_t at = 0;
  for (unsigned loop = 0; loop < count; ++loop) {
    for (unsigned step = 0; step < kPerLoop; ++step) {
      at = (at + 1 + random.below(7)) % kWorkingSet;
      set[at].release();
      set[at] = Block::make(linear_size(random), random.next());
    }
    if (loop % 4 != 0) continue;
    auto* mine = new Passed;
    for (Block& block : mine->blocks) block = Block::make(linear_size(random), random.next());
    if (Passed* others = passed.exchange(mine)) {
      for (Block& block : others->blocks) block.release();
      delete others;
    }
  }
  for (Block& block : set) block.release();
}

void run(const Setting& setting) {
  std::atomic<Passed*> passed{nullptr};
  in_threads(setting.threads, [&](unsigned number) {
    Random random(setting.seed * 1000 + number);
    loops(passed, random, kLoopsAll / setting.threads);
  });
  if (Passed* last = passed.exchange(nullptr)) {
    for (Block& block : last->blocks) block.release();
    delete last;
  }
}

const Workload rptest("rptest", run);

}  // namespace
}  // namespace host_bench
