// Short-lived threads, as the mleak test: thousands come and go, each allocates, frees half of its blocks and those
// that a dead thread left behind. Memory that is not adopted from dead threads shows as peak memory.
#include <atomic>
#include <memory>

#include "workload.hpp"

namespace host_bench {
namespace {

constexpr unsigned kThreadsAll = 7000, kBlocks = 400;
constexpr std::size_t kLeftBehind = 16;

using Heritage = std::vector<Block>;

void live(std::atomic<Heritage*>& place, Random random) {
  auto mine = std::make_unique<Heritage>();
  mine->reserve(kBlocks);
  for (unsigned at = 0; at < kBlocks; ++at) {
    mine->push_back(Block::make(random.between(1, std::size_t{32} << random.below(7)), random.next()));
    if (at % 2 == 1) {
      std::swap(mine->back(), (*mine)[random.below(mine->size())]);
      mine->back().release();
      mine->pop_back();
    }
  }
  const std::unique_ptr<Heritage> others(place.exchange(mine.release()));
  if (others)
    for (Block& block : *others) block.release();
}

void run(const Setting& setting) {
  std::vector<std::atomic<Heritage*>> places(kLeftBehind);
  for (unsigned round = 0; round < kThreadsAll / setting.threads; ++round)
    in_threads(setting.threads, [&](unsigned number) {
      Random random(setting.seed * 1'000'000 + round * 100 + number);
      live(places[random.below(kLeftBehind)], random);
    });
  for (std::atomic<Heritage*>& place : places) {
    const std::unique_ptr<Heritage> last(place.exchange(nullptr));
    if (last)
      for (Block& block : *last) block.release();
  }
}

const Workload thread_churn("thread_churn", run);

}  // namespace
}  // namespace host_bench
