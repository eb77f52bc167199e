// Large buffers: twenty live ones of 5 to 25 MiB, the oldest replaced, a word of each page written.
#include "workload.hpp"

namespace host_bench {
namespace {

constexpr std::size_t kLive = 20, kBytesMin = 5 << 20, kBytesMax = 25 << 20, kPage = 4096;
constexpr unsigned kRounds = 260;

void run(const Setting& setting) {
  Random random(setting.seed);
  std::vector<Block> live(kLive);
  for (unsigned round = 0; round < kRounds; ++round) {
    Block& oldest = live[round % kLive];
    oldest.release();
    oldest = Block::make(random.between(kBytesMin, kBytesMax), random.next());
    auto* bytes = static_cast<unsigned char*>(oldest.at());
    for (std::size_t at = kPage; at + 1 < oldest.bytes(); at += kPage) bytes[at] = static_cast<unsigned char>(round);
  }
  for (Block& block : live) block.release();
}

const Workload malloc_large("malloc_large", run);

}  // namespace
}  // namespace host_bench
