// Aligned buffers, as numeric code allocates them: alignments from 16 bytes to a page, sizes to 64 KiB, by
// posix_memalign and by aligned operator new, several lives at once.
#include <new>

#include "workload.hpp"

namespace host_bench {
namespace {

constexpr std::size_t kSlots = 400;
constexpr unsigned kReplacements = 1'500'000;

struct Aligned {
  void* at = nullptr;
  std::size_t bytes = 0, alignment = 0;
};

void release(Aligned& block) {
  if (block.at == nullptr) return;
  check_stamp(block.at, block.bytes, block.bytes * block.alignment);
  // Alignments of both kinds are told apart by one bit of the size.
  if (block.bytes % 2 == 0)
    std::free(block.at);
  else
    ::operator delete(block.at, std::align_val_t(block.alignment));
}

Aligned make(std::size_t bytes, std::size_t alignment) {
  Aligned block{nullptr, bytes, alignment};
  if (bytes % 2 == 0)
    require(posix_memalign(&block.at, alignment, bytes) == 0, "posix_memalign failed");
  else
    block.at = ::operator new(bytes, std::align_val_t(alignment));
  require(reinterpret_cast<std::uintptr_t>(block.at) % alignment == 0, "a block is not aligned");
  stamp(block.at, bytes, bytes * alignment);
  return block;
}

void run(const Setting& setting) {
  Random random(setting.seed);
  std::vector<Aligned> table(kSlots);
  for (unsigned done = 0; done < kReplacements; ++done) {
    Aligned& slot = table[random.below(kSlots)];
    release(slot);
    // Mostly a cache line or less, seldom a page.
    const std::size_t alignment = std::size_t{16} << (random.chance(90) ? random.below(3) : random.below(9));
    slot = make(random.between(1, std::size_t{64} << random.below(11)), alignment);
  }
  for (Aligned& block : table) release(block);
}

const Workload aligned("aligned", run);

}  // namespace
}  // namespace host_bench
