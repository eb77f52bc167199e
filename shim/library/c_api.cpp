// See library.hpp: the table of all its calls, and those for the pools that a kind has by itself.
#include "shim/library/library.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/process.hpp"

namespace cistern::library {
namespace {

const KindPool* find_pool(int id) {
  for (const Kind* kind : kinds())
    for (const KindPool& pool : kind->pools)
      if (pool.id == id) return &pool;
  return nullptr;
}

}  // namespace

const char* version() { return CISTERN_VERSION; }

int get_statistics(cistern_kind kind, cistern_statistics* statistics) {
  const KindPool* const pool = find_pool(kind);
  if (!pool || !statistics) return -1;
  std::uint64_t largest_kept = 0;
  const KindFigures figures = pool->figures(&largest_kept);
  *statistics = {.allocations = figures.allocations,
                 .frees = figures.frees,
                 .pool_hits = figures.pool_hits,
                 .pool_misses = figures.pool_misses,
                 .driver_allocs = figures.driver_allocs,
                 .driver_frees = figures.driver_frees,
                 .live_blocks = figures.live_blocks,
                 .live_bytes = figures.live_bytes,
                 .peak_bytes = figures.peak_bytes,
                 .pooled_blocks = figures.pooled_blocks,
                 .pooled_bytes = figures.pooled_bytes,
                 .largest_pooled_bytes = largest_kept,
                 .failed = figures.failed};
  return 0;
}

cistern_status set_option(const char* name, const char* value) {
  switch (cistern::set_option(name, value)) {
    case OptionSet::done:
      return CISTERN_OK;
    case OptionSet::too_late:
      return CISTERN_TOO_LATE;
    default:
      return CISTERN_INVALID;
  }
}

size_t defragment(cistern_kind kind) {
  constexpr std::uint64_t kUnusedForNs = 1'000'000'000;
  const KindPool* const pool = find_pool(kind);
  return pool ? pool->trim(0, kUnusedForNs) : 0;
}

size_t trim(cistern_kind kind, size_t keep_bytes) {
  const KindPool* const pool = find_pool(kind);
  return pool ? pool->trim(keep_bytes, 0) : 0;
}

const Interface own_interface{
    kInterface,
    sizeof(Interface),
    CISTERN_VERSION,
#define LIBRARY_CALL(result, name, parameters, arguments) name,
#include "shim/symbols/library.def"
};

}  // namespace cistern::library
