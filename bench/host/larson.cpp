// A server under load, after Larson and Krishnan: each thread replaces random blocks of its table; then the table goes
// to a new thread, which frees what its predecessors allocated.
#include "workload.hpp"

namespace host_bench {
namespace {

constexpr std::size_t kSlots = 1000, kBytesMin = 8, kBytesMax = 1000;
constexpr unsigned kGenerations = 60, kReplacements = 16'000'000;

void replace_blocks(std::vector<Block>& table, Random& random, unsigned count) {
  for (unsigned done = 0; done < count; ++done) {
    Block& slot = table[random.below(kSlots)];
    slot.release();
    slot = Block::make(random.between(kBytesMin, kBytesMax), random.next());
  }
}

void run(const Setting& setting) {
  in_threads(setting.threads, [&](unsigned number) {
    Random random(setting.seed * 1000 + number);
    std::vector<Block> table(kSlots);
    const unsigned each = kReplacements / setting.threads / kGenerations;
    for (unsigned generation = 0; generation < kGenerations; ++generation)
      std::thread([&] { replace_blocks(table, random, each); }).join();
    for (Block& block : table) block.release();
  });
}

const Workload larson("larson", run);

}  // namespace
}  // namespace host_bench
