// Random frees of a skewed working set, as Ignatchenko's alloc-test: most work hits a few slots, and sizes spread over
// powers of two. A slot that is filled is read and freed, one that is empty is filled and written as a whole.
#include "workload.hpp"

namespace host_bench {
namespace {

constexpr std::size_t kSlots = 1 << 18;
constexpr unsigned kSizeBits = 10, kStepsAll = 5'000'000;

// 80 % of the picks fall into a fifth of the slots, and again within that fifth.
std::size_t skewed_slot(Random& random, std::size_t slots) {
  std::size_t end = slots;
  while (end > 64 && random.chance(80)) end /= 5;
  return random.below(end);
}

void steps(Random& random, unsigned count, std::size_t slots) {
  std::vector<Block> table(slots);
  for (unsigned step = 0; step < count; ++step) {
    Block& slot = table[skewed_slot(random, slots)];
    if (slot) {
      slot.release();
      continue;
    }
    const std::size_t most = std::size_t{8} << random.below(kSizeBits - 2);
    slot = Block::make(random.between(1, most), random.next());
    if (slot.bytes() > 9) std::memset(static_cast<char*>(slot.at()) + 8, 0x55, slot.bytes() - 9);
  }
  for (Block& block : table) block.release();
}

void run(const Setting& setting) {
  in_threads(setting.threads, [&](unsigned number) {
    Random random(setting.seed * 1000 + number);
    steps(random, kStepsAll / setting.threads, kSlots / setting.threads);
  });
}

const Workload alloc_test("alloc_test", run);

}  // namespace
}  // namespace host_bench
