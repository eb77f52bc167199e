// Two loops as glibc's own benchmarks of malloc: glibc_simple allocates groups of one size and frees them in order,
// glibc_thread lets threads replace random blocks, sizes falling off with the square.
#include "workload.hpp"

namespace host_bench {
namespace {

constexpr std::size_t kGroups[] = {25, 100, 400, 1600}, kBlocksPerSize = 120'000;
constexpr std::size_t kSlots = 1024, kBytesMin = 4, kBytesMax = 32 << 10;
constexpr unsigned kReplacements = 12'000'000;

void simple(const Setting&) {
  std::vector<void*> blocks(1600);
  for (std::size_t bytes = 16; bytes <= 4096; bytes *= 2) {
    for (std::size_t group : kGroups) {
      for (std::size_t done = 0; done < kBlocksPerSize; done += group) {
        for (std::size_t at = 0; at < group; ++at) {
          blocks[at] = std::malloc(bytes);
          require(blocks[at] != nullptr, "malloc returned null");
          stamp(blocks[at], bytes, at);
        }
        for (std::size_t at = 0; at < group; ++at) {
          check_stamp(blocks[at], bytes, at);
          std::free(blocks[at]);
        }
      }
    }
  }
}

/// With probability density falling as 1 / size^2 between the limits.
std::size_t inverse_square_size(Random& random) {
  const double uniform = static_cast<double>(random.next() >> 11) * 0x1p-53;
  const double least = 1.0 / kBytesMin, most = 1.0 / kBytesMax;
  return static_cast<std::size_t>(1.0 / (least - uniform * (least - most)));
}

void thread(const Setting& setting) {
  in_threads(setting.threads, [&](unsigned number) {
    Random random(setting.seed * 1000 + number);
    std::vector<std::size_t> sizes(1 << 13);
    for (std::size_t& size : sizes) size = inverse_square_size(random);
    std::vector<Block> table(kSlots);
    for (unsigned done = 0; done < kReplacements / setting.threads; ++done) {
      const std::uint64_t picks = random.next();
      Block& slot = table[picks % kSlots];
      slot.release();
      slot = Block::make(sizes[(picks >> 32) % sizes.size()], picks);
    }
    for (Block& block : table) block.release();
  });
}

const Workload glibc_simple("glibc_simple", simple), glibc_thread("glibc_thread", thread);

}  // namespace
}  // namespace host_bench
