// Batches of small blocks with changing orders of free, as MicroQuill's SmartHeap benchmarks: sh6bench has one thread
// and batches of one size, smaller sizes more often; sh8bench has threads, random sizes, and frees half of what it
// keeps.
#include "workload.hpp"

namespace host_bench {
namespace {

constexpr std::size_t kBatch = 2000, kKept = 20'000;
constexpr unsigned kPasses6 = 300, kBatches8All = 10'000;

enum class Order { kSame, kReverse, kInterleaved };

void release_all(std::vector<Block>& blocks, Order order) {
  const std::size_t count = blocks.size();
  for (std::size_t at = 0; at < count; ++at) {
    if (order == Order::kSame) blocks[at].release();
    if (order == Order::kReverse) blocks[count - 1 - at].release();
    // First the even ones, then the odd ones: every free has living neighbours.
    if (order == Order::kInterleaved) blocks[at < (count + 1) / 2 ? 2 * at : 2 * (at - (count + 1) / 2) + 1].release();
  }
  blocks.clear();
}

void sh6bench(const Setting& setting) {
  Random random(setting.seed);
  std::vector<Block> batch, held;
  for (unsigned pass = 0; pass < kPasses6; ++pass) {
    for (std::size_t bytes = 8 + pass % 8; bytes <= 1000; bytes += bytes / 4) {
      for (std::size_t at = 0; at < kBatch; ++at) batch.push_back(Block::make(bytes, random.next()));
      // One block in 32 outlives its batch, until the pass ends.
      for (std::size_t at = random.below(32); at < batch.size(); at += 32) {
        held.push_back(batch[at]);
        batch[at] = batch.back();
        batch.pop_back();
      }
      release_all(batch, Order{static_cast<int>(random.below(3))});
    }
    release_all(held, Order::kReverse);
  }
}

void sh8bench(const Setting& setting) {
  in_threads(setting.threads, [&](unsigned number) {
    Random random(setting.seed * 1000 + number);
    std::vector<Block> kept(kKept);
    std::vector<Block> batch;
    for (unsigned done = 0; done < kBatches8All / setting.threads; ++done) {
      for (std::size_t at = 0; at < kBatch / 2; ++at)
        batch.push_back(Block::make(random.between(1, std::size_t{16} << random.below(7)), random.next()));
      for (std::size_t at = 0; at < batch.size(); at += 2) std::swap(batch[at], kept[random.below(kKept)]);
      release_all(batch, Order{static_cast<int>(random.below(3))});
    }
    for (Block& block : kept) block.release();
  });
}

const Workload sh6("sh6bench", sh6bench), sh8("sh8bench", sh8bench);

}  // namespace
}  // namespace host_bench
