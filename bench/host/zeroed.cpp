// Tables from calloc, 64 bytes to 1 MiB: a sample must be zero, then it is written, so that memory that comes back
// dirty is noticed.
#include "workload.hpp"

namespace host_bench {
namespace {

constexpr std::size_t kSlots = 200, kStride = 1024;
constexpr unsigned kTables = 1'000'000;

struct Table {
  unsigned char* at = nullptr;
  std::size_t bytes = 0;
};

void run(const Setting& setting) {
  Random random(setting.seed);
  std::vector<Table> tables(kSlots);
  for (unsigned done = 0; done < kTables; ++done) {
    Table& table = tables[random.below(kSlots)];
    std::free(table.at);
    table.bytes = random.between(64, std::size_t{128} << (random.chance(97) ? random.below(7) : random.below(14)));
    table.at = static_cast<unsigned char*>(std::calloc(table.bytes, 1));
    require(table.at != nullptr, "calloc returned null");
    const std::size_t offset = random.below(64);
    for (std::size_t at = offset; at < table.bytes; at += kStride) {
      require(table.at[at] == 0, "memory of calloc is not zero");
      table.at[at] = 0xff;
    }
    require(table.at[table.bytes - 1] == 0 || (table.bytes - 1 - offset) % kStride == 0, "the last byte is not zero");
    table.at[table.bytes - 1] = 0xff;
  }
  for (Table& table : tables) std::free(table.at);
}

const Workload zeroed("zeroed", run);

}  // namespace
}  // namespace host_bench
