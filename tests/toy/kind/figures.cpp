// What reports say of the toy driver's memory. Also the row of the kind.
#include "shim/process/kind.hpp"
#include "stats/leak_rows.hpp"
#include "tests/toy/kind/state.hpp"

namespace cistern::toy {
namespace {

bool used() {
  State* const s = state_if_used();
  return s && read(s->counters.allocations) != 0;
}

KindFigures figures() {
  State& s = state();
  KindFigures figures = s.counters.figures("toy", true);
  figures.driver_allocs += s.source.calls.allocs;
  figures.driver_frees += s.source.calls.frees;
  const PoolUsage usage = s.pool.usage();
  figures.pooled_blocks = usage.blocks;
  figures.pooled_bytes = usage.bytes;
  return figures;
}

void add_leaks(Vector<LeakFigures>& leaks) {
  LeakRows rows(leaks);
  state().blocks.for_each([&](const void*, Block& block) {
    if (block.pooled || block.inherited) return;
    const LiveBlocks one{"block", "toy_allocate", block.site, block.bytes, block.born_ns, block.born_ns};
    rows.add(one, 0, [] { return "toy"; });
  });
}

void add_to(Snapshot& snapshot) {
  if (!used()) return;
  const PoolUsage usage = state().pool.usage();
  const std::uint64_t live = read(state().counters.live_bytes);
  snapshot.kinds.push_back(figures());
  const std::uint64_t free = usage.bytes + state().in_segments.free();
  snapshot.fragmentation.push_back({"toy", live + free, live, live, free, usage.largest_bytes});
  add_leaks(snapshot.leaks);
}

KindFigures pool_figures(std::uint64_t* largest_kept_bytes) {
  if (!used()) return {};
  *largest_kept_bytes = state().pool.usage().largest_bytes;
  return figures();
}

std::uint64_t trim(std::uint64_t keep_bytes, std::uint64_t unused_for_ns) {
  State* const s = state_if_used();
  return s ? s->pool.trim({.keep_bytes = keep_bytes, .unused_for_ns = unused_for_ns}, coarse_now_ns()) : 0;
}

std::uint64_t live_bytes() {
  State* const s = state_if_used();
  return s ? read(s->counters.live_bytes) : 0;
}

constexpr KindPool kPools[] = {{kKind, pool_figures, trim}};
constexpr const library::KindMemory* kMemory[] = {&memory};

}  // namespace

extern constexpr Kind kind = {
    .name = "toy",
    .pools = kPools,
    .memory = kMemory,
    .used = used,
    .add_to = add_to,
    .live_bytes = live_bytes,
    .fork = {before_fork, after_fork_in_parent, after_fork_in_child, after_fork_in_parent},
};

}  // namespace cistern::toy
