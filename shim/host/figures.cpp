// What reports say of host memory, served from the pool or counted only. Also the row of the kind.
#include <algorithm>

#include "cistern/cistern.h"
#include "pool/heap/account.hpp"
#include "pool/heap/purge.hpp"
#include "pool/heap/region.hpp"
#include "pool/heap/samples.hpp"
#include "pool/heap/threads.hpp"
#include "shim/host/counters.hpp"
#include "shim/host/growth.hpp"
#include "shim/host/library_side.hpp"
#include "shim/host/native.hpp"
#include "shim/host/placement.hpp"
#include "shim/host/serving.hpp"
#include "shim/host/sites.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/process.hpp"
#include "stats/counters.hpp"

namespace cistern::host {
namespace {

double seconds_after_start(std::uint64_t coarse_ns) {
  const std::uint64_t age = coarse_now_ns() - coarse_ns, now = nanoseconds_since_start();
  return now > age ? static_cast<double>(now - age) / 1e9 : 0;
}

// Blocks that the C library served although the pool is on were counted; they are few and added.
KindFigures figures() {
  KindFigures figures = counted_figures();
  if (counting_is_off()) {
    figures = KindFigures{};
    figures.name = "host";
    figures.is_host = true;
    return figures;
  }
  if (!pool_serves()) return figures;
  const host_pool::Account account = host_pool::account();
  const host_pool::RegionFigures region = host_pool::region_figures();
  const std::uint64_t allocations = account.allocations(), live_blocks = account.live_blocks();
  figures.allocations += allocations;
  *figures.allocated_bytes += account.allocated_bytes();
  if (host_pool::samples_every_block()) figures.temporary = account.temporary_blocks;
  const auto freed = static_cast<std::int64_t>(account.inherited_blocks + allocations - live_blocks);
  if (freed > 0) figures.frees += static_cast<std::uint64_t>(freed);  // threads at work may make it appear negative
  figures.live_blocks += live_blocks;
  figures.live_bytes += account.live_bytes();
  for (unsigned id = 0; id < host_pool::kClasses; ++id) {
    const host_pool::ClassAccount& one = account.classes[id];
    if (one.page_bytes)
      figures.sizes.push_back({host_pool::class_bytes(id), one.allocations, one.live_blocks, one.free_blocks});
  }
  // A hit: no memory of the system's was taken for it.
  figures.pooled_kind = true;
  figures.pool_misses = std::min(region.fresh, allocations);
  figures.pool_hits = allocations - figures.pool_misses;
  figures.driver_allocs = region.grown;
  figures.driver_frees = region.given_back;
  figures.peak_bytes = std::max(region.peak_in_use_bytes, figures.live_bytes);
  if (region.peak_at_ns) figures.peak_at_s = seconds_after_start(region.peak_at_ns);
  return figures;
}

// Absent where the pool does not serve. `requested_ratio`: of live bytes, as far as known.
std::optional<FragmentationFigures> fragmentation(std::optional<double> requested_ratio) {
  if (!pool_serves() || counting_is_off()) return std::nullopt;
  const host_pool::RegionFigures region = host_pool::region_figures();
  const host_pool::Account account = host_pool::account();
  const std::uint64_t live = account.live_bytes(), purged = host_pool::purged_bytes(),
                      in_pages = region.in_use_bytes + region.dirty_bytes;
  if (!in_pages || in_pages < live + purged) return std::nullopt;
  const std::uint64_t reserved = in_pages - purged;
  FragmentationFigures figures{"host", reserved, live, std::nullopt, reserved - live, 0};
  if (requested_ratio)
    figures.requested_bytes = static_cast<std::uint64_t>(*requested_ratio * static_cast<double>(live));
  figures.largest_free_bytes = region.largest_dirty_bytes;
  for (unsigned id = 0; id < host_pool::kClasses; ++id)
    if (account.classes[id].free_blocks)
      figures.largest_free_bytes = std::max<std::uint64_t>(figures.largest_free_bytes, host_pool::class_bytes(id));
  figures.largest_free_bytes = std::min(figures.largest_free_bytes, figures.free_bytes);
  figures.splits = true;
  figures.reserved_peak_bytes = std::max(region.peak_reserved_bytes, reserved);
  figures.returned_when_asked_bytes = returned_bytes(host_pool::Why::asked);
  figures.returned_by_age_bytes = returned_bytes(host_pool::Why::age);
  figures.returned_under_pressure_bytes = returned_bytes(host_pool::Why::pressure);
  figures.returned_by_maintenance_bytes = returned_bytes(host_pool::Why::maintenance);
  return figures;
}

bool used() { return true; }

std::uint64_t live_bytes() { return figures().live_bytes; }

KindFigures pool_figures(std::uint64_t*) { return figures(); }

std::uint64_t trim(std::uint64_t keep_bytes, std::uint64_t) { return host_pool::trim(keep_bytes); }

BlocksAndBytes without_site(const KindFigures& all, const Vector<LeakFigures>& sites) {
  BlocksAndBytes rest{all.live_blocks, all.live_bytes};
  for (const LeakFigures& site : sites) {
    rest.blocks -= std::min(rest.blocks, site.blocks);
    rest.bytes -= std::min(rest.bytes, site.bytes);
  }
  return rest;
}

// Before other kinds' figures, whose making allocates.
void add_sites(const KindFigures& all, Snapshot& snapshot) {
  LiveSites live = live_sites();
  const bool exact = sites_mode() == "all";
  snapshot.host_sites = std::move(live.sites);
  snapshot.host_standings = live.by_standing;
  if (!exact && !snapshot.host_sites.empty()) snapshot.estimated.push_back("leaks.host");
  if (snapshot.host_sites_mode != "off") snapshot.host_without_site = without_site(all, snapshot.host_sites);
  std::optional<FragmentationFigures> fragments = fragmentation(live.requested_ratio);
  if (!fragments) return;
  if (!exact && fragments->requested_bytes) snapshot.estimated.push_back("fragmentation.host.internal");
  snapshot.fragmentation.push_back(std::move(*fragments));
}

// As a layer we see no malloc: figures that do not exist are left out.
void add_to(Snapshot& snapshot) {
  snapshot.host_sites_mode = sites_mode();
  KindFigures figures = host::figures();
  if (!figures.allocations && !figures.frees && !figures.live_blocks) {
    if (!preloaded.load(std::memory_order_relaxed)) snapshot.host_sites_mode = "unseen";
    return;
  }
  snapshot.estimated.push_back("kinds.host.peak_bytes");
  add_sites(figures, snapshot);
  add_growth(figures.peak_bytes, snapshot);
  snapshot.kinds.push_back(std::move(figures));
}

// --- Fork: a child counts anew
void before_fork() {
  growth_before_fork();
  native_before_fork();
  host_pool::threads_before_fork();
}

void after_fork_in_parent() {
  host_pool::threads_after_fork_in_parent();
  native_after_fork();
  growth_after_fork();
}

void after_fork_in_child() {
  host_pool::threads_after_fork_in_child();
  host_pool::restart_account();
  host_pool::restart_region_figures();
  reset_counters();
  native_after_fork();
  growth_after_fork_in_child();
}

constexpr KindPool kPools[] = {{CISTERN_HOST, pool_figures, trim}};
constexpr const library::KindMemory* kMemory[] = {&pool_memory};

}  // namespace

extern constexpr Kind kind = {
    .name = "host",
    .pools = kPools,
    .memory = kMemory,
    .used = used,
    .add_to = add_to,
    .live_bytes = live_bytes,
    .fork = {before_fork, after_fork_in_parent, after_fork_in_child, after_fork_in_child},
    .copied = copied,
    .visit_live = visit_live,
    .before_exit = look_at_growth_once_more,
};

}  // namespace cistern::host
