// See library.hpp: the table of all its calls, and those for the pools that a kind has by itself.
#include "shim/library/answers.hpp"
#include "shim/library/kind_memory.hpp"
#include "shim/library/library.hpp"
#include "shim/library/segments.hpp"
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

cistern_status trim_unused(cistern_kind kind, std::size_t keep_bytes, std::uint64_t unused_for_ns,
                           std::size_t* returned_bytes) {
  native = 0;
  if (returned_bytes) *returned_bytes = 0;
  const KindPool* const pool = find_pool(kind);
  if (!pool) return memory_of(kind) ? CISTERN_OK : CISTERN_INVALID;  // memory that is never kept
  std::size_t returned = pool->trim(keep_bytes, unused_for_ns);
  if (!keep_bytes)
    returned += trim_all_segments(
        memory_of(kind), unused_for_ns ? Segments::not_needed_since_the_call_before : Segments::all_without_blocks);
  if (returned_bytes) *returned_bytes = returned;
  return CISTERN_OK;
}

}  // namespace

const char* version() { return CISTERN_VERSION; }

cistern_status get_statistics(cistern_kind kind, cistern_statistics* statistics) {
  native = 0;
  const KindPool* const pool = find_pool(kind);
  if (!clear_sized(statistics) || !pool) return CISTERN_INVALID;
  std::uint64_t largest_kept = 0;
  const KindFigures figures = pool->figures(&largest_kept);
  write_sized(statistics, {.struct_bytes = 0,
                           .allocations = figures.allocations,
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
                           .failed = figures.failed});
  return CISTERN_OK;
}

cistern_status set_option(const char* name, const char* value) {
  native = 0;
  switch (cistern::set_option(name, value)) {
    case OptionSet::done:
      return CISTERN_OK;
    case OptionSet::too_late:
      return CISTERN_TOO_LATE;
    default:
      return CISTERN_INVALID;
  }
}

cistern_status defragment(cistern_kind kind, size_t* returned_bytes) {
  constexpr std::uint64_t kUnusedForNs = 1'000'000'000;
  return trim_unused(kind, 0, kUnusedForNs, returned_bytes);
}

cistern_status trim(cistern_kind kind, size_t keep_bytes, size_t* returned_bytes) {
  return trim_unused(kind, keep_bytes, 0, returned_bytes);
}

const Interface own_interface{
    kInterface,
    sizeof(Interface),
    CISTERN_VERSION,
#define LIBRARY_CALL(result, name, parameters, arguments) name,
#include "shim/symbols/library.def"
};

}  // namespace cistern::library
