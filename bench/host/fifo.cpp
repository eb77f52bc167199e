// Blocks that die in the order of their birth: a thousand live ones of one size, small to 32 KiB, then of mixed sizes.
#include "workload.hpp"

namespace host_bench {
namespace {

constexpr std::size_t kLive = 1000;
constexpr unsigned kRoundsPerSize = 3'000'000, kRoundsMixed = 3'000'000;

template <typename NextSize>
void rounds(unsigned count, const NextSize& next_size) {
  std::vector<Block> live(kLive);
  for (unsigned round = 0; round < count; ++round) {
    Block& oldest = live[round % kLive];
    oldest.release();
    oldest = Block::make(next_size(), round);
  }
  for (Block& block : live) block.release();
}

void run(const Setting& setting) {
  for (std::size_t bytes : {16, 64, 256, 1 << 10, 4 << 10, 32 << 10}) rounds(kRoundsPerSize, [bytes] { return bytes; });
  Random random(setting.seed);
  rounds(kRoundsMixed, [&] { return random.between(1, std::size_t{16} << random.below(12)); });
}

const Workload fifo("fifo", run);

}  // namespace
}  // namespace host_bench
