// Figures of host memory, and what happens to it across fork.
#include <algorithm>

#include "pool/host_account.hpp"
#include "pool/host_region.hpp"
#include "pool/host_threads.hpp"
#include "shim/core/core.hpp"
#include "shim/core/host_counters.hpp"
#include "shim/core/host_serving.hpp"
#include "stats/counters.hpp"

namespace cistern::host {
namespace {

double seconds_after_start(std::uint64_t coarse_ns) {
  const std::uint64_t age = coarse_now_ns() - coarse_ns, now = nanoseconds_since_start();
  return now > age ? static_cast<double>(now - age) / 1e9 : 0;
}

}  // namespace

// Blocks that the C library served although the pool is on were counted; they are few and added.
KindFigures figures() {
  KindFigures figures = counted_figures();
  if (counting_is_off()) {
    figures = KindFigures{};
    figures.name = "host";
    return figures;
  }
  if (!pool_serves()) return figures;
  const host_pool::Account account = host_pool::account();
  const host_pool::RegionFigures region = host_pool::region_figures();
  const std::uint64_t allocations = account.allocations(), live_blocks = account.live_blocks();
  figures.allocations += allocations;
  figures.frees += account.inherited_blocks + allocations - live_blocks;
  figures.live_blocks += live_blocks;
  figures.live_bytes += account.live_bytes();
  for (unsigned id = 0; id < host_pool::kClasses; ++id) {
    const host_pool::ClassAccount& one = account.classes[id];
    if (one.page_bytes)
      figures.sizes.push_back({host_pool::class_bytes(id), one.allocations, one.live_blocks, one.free_blocks});
  }
  figures.peak_bytes = std::max(region.peak_in_use_bytes, figures.live_bytes);
  if (region.peak_at_ns) figures.peak_at_s = seconds_after_start(region.peak_at_ns);
  return figures;
}

std::optional<FragmentationFigures> fragmentation(std::optional<double> requested_ratio) {
  if (!pool_serves() || counting_is_off()) return std::nullopt;
  const host_pool::RegionFigures region = host_pool::region_figures();
  const std::uint64_t live = host_pool::account().live_bytes(), reserved = region.in_use_bytes + region.dirty_bytes;
  if (!live || reserved < live) return std::nullopt;
  FragmentationFigures figures{"host", reserved, live, std::nullopt, reserved - live, 0};
  if (requested_ratio)
    figures.requested_bytes = static_cast<std::uint64_t>(*requested_ratio * static_cast<double>(live));
  figures.largest_free_bytes = std::min(region.largest_free_bytes, figures.free_bytes);
  return figures;
}

void before_fork() { host_pool::threads_before_fork(); }
void after_fork_in_parent() { host_pool::threads_after_fork_in_parent(); }
void after_fork_in_child() {
  host_pool::threads_after_fork_in_child();
  host_pool::restart_account();
  reset_counters();
}

}  // namespace cistern::host
