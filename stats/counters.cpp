// See counters.hpp.
#include "stats/counters.hpp"

#include <algorithm>
#include <new>
#include <span>

#include "pool/base/clock.hpp"

namespace cistern {
namespace {

constexpr const char* kUnpooledTexts[] = {
#define UNPOOLED(name, text) text,
#include "stats/unpooled.def"
#undef UNPOOLED
};

constexpr const char* kWaitedTexts[] = {
#define WAITED(name, text) text,
#include "stats/waited.def"
#undef WAITED
};

constinit std::atomic<std::uint64_t> clock_start{0};

void clear(Counter& counter) { counter.store(0, std::memory_order_relaxed); }

}  // namespace

bool raise_peak(Counter& peak, std::uint64_t value) {
  std::uint64_t seen = read(peak);
  while (seen < value)
    if (peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) return true;
  return false;
}

namespace {
// `bytes` wraps for less.
void change_part(PartCounters& part, int blocks, std::uint64_t bytes) {
  bump(part.live_blocks, static_cast<std::uint64_t>(blocks));
  bump(part.live_bytes, bytes);
}

void born_in_part(PartCounters& part, std::uint64_t bytes, std::uint64_t now_ns) {
  bump(part.allocations);
  change_part(part, 1, bytes);
  if (read(part.live_bytes) <= read(part.peak_bytes)) return;
  part.peak_bytes.store(read(part.live_bytes), std::memory_order_relaxed);
  part.peak_at_ns.store(now_ns, std::memory_order_relaxed);
}
}  // namespace

void KindCounters::note_reserved(std::uint64_t reserved_bytes, std::uint64_t live_now, std::uint64_t now_ns) {
  if (reserved_bytes < live_now || reserved_bytes - live_now <= worst_.reserved_bytes - worst_.live_bytes) return;
  worst_ = {static_cast<double>(now_ns) / 1e9, reserved_bytes, live_now};
}

std::optional<WorstMoment> KindCounters::worst_moment(const Reserved& reserved) {
  const std::uint64_t now_ns = nanoseconds_since_start();
  const Locked hold(lock);
  note_reserved(reserved.now_bytes, read(live_bytes), now_ns);
  if (!worst_.reserved_bytes) return std::nullopt;
  WorstMoment worst = worst_;
  worst.reserved_bytes = std::max(worst.live_bytes, std::min(worst.reserved_bytes, reserved.peak_bytes));
  return worst;
}

void KindCounters::block_born(const CountedBlock& block, bool pool_hit, std::uint64_t reserved_bytes) {
  const std::uint64_t now_ns = coarse_nanoseconds_since_start();
  Locked hold(lock);
  block_born_locked(block, pool_hit, reserved_bytes, now_ns);
}

void KindCounters::block_born_locked(const CountedBlock& block, bool pool_hit, std::uint64_t reserved_bytes,
                                     std::uint64_t now_ns) {
  born_from_pool = pool_hit;
  // Counts a block that was made for the pool alone.
  if (pool_hit) note_reserved(reserved_bytes, read(live_bytes), now_ns);
  const SiteUse::Moment now{peaks_, now_ns / 1'000'000};
  bump(allocations);
  bump(live_blocks);
  if (pool_hit) bump(pool_hits);
  if (block.part) born_in_part(*block.part, block.bytes, now_ns);
  last_born_ = ~reinterpret_cast<std::uintptr_t>(block.handle);
  if (SiteUse* const use = sites_.of(block.site)) use->born(block.api, block.bytes, now);
  if (!block.bytes) return;
  bump(allocated_bytes, block.bytes);
  bump(live_bytes, block.bytes);
  history_.note(now.ms, read(live_bytes), now.ms);
  if (read(live_bytes) > read(peak_bytes)) {
    ++peaks_;
    peak_bytes.store(read(live_bytes), std::memory_order_relaxed);
    peak_at_ns.store(now_ns, std::memory_order_relaxed);
  }
  ClassCounters& size_class = classes[report_class(block.bytes)];
  bump(size_class.allocations);
  if (pool_hit) bump(size_class.hits);
  bump(size_class.live_blocks);
  if (read(size_class.live_blocks) > read(size_class.high_water_blocks)) bump(size_class.high_water_blocks);
}

bool KindCounters::is_last_born(const CountedBlock& block) {
  const bool is_last = block.handle && ~reinterpret_cast<std::uintptr_t>(block.handle) == last_born_;
  last_born_ = kNone;
  if (is_last) bump(temporary);
  return is_last;
}

void KindCounters::block_died(const CountedBlock& block) {
  const std::uint64_t now_ns = coarse_nanoseconds_since_start();
  Locked hold(lock);
  block_died_locked(block, now_ns);
}

// Most is reserved in vain right after a free.
void KindCounters::block_died_locked(const CountedBlock& block, std::uint64_t now_ns, std::uint64_t reserved_bytes) {
  bump(frees);
  drop(live_blocks);
  if (block.part) change_part(*block.part, -1, 0 - block.bytes);
  const bool was_last_born = is_last_born(block);
  const SiteUse::Moment now{peaks_, now_ns / 1'000'000};
  if (SiteUse* const use = sites_.of(block.site)) use->died(1, block.bytes, was_last_born, now);
  if (!block.bytes) return;
  drop(live_bytes, block.bytes);
  note_reserved(reserved_bytes, read(live_bytes), now_ns);
  history_.note(now.ms, read(live_bytes), 0);
  drop(classes[report_class(block.bytes)].live_blocks);
}

void KindCounters::bytes_died(const CountedBlock& block) {
  Locked hold(lock);
  drop(live_bytes, block.bytes);
  if (block.part) change_part(*block.part, 0, 0 - block.bytes);
  drop(classes[report_class(block.bytes)].live_blocks);
  const SiteUse::Moment now{peaks_, coarse_milliseconds_since_start()};
  history_.note(now.ms, read(live_bytes), 0);
  if (SiteUse* const use = sites_.of(block.site)) use->died(0, block.bytes, false, now);
}

void KindCounters::block_revived(const CountedBlock& block) {
  subtract(driver_frees);
  Locked hold(lock);
  bump(live_blocks);
  drop(frees);
  if (block.part) change_part(*block.part, 1, 0);
  if (SiteUse* const use = sites_.of(block.site)) use->revived(peaks_, 0);
}

void KindCounters::block_did_not_die(const CountedBlock& block) {
  Locked hold(lock);
  drop(frees);
  bump(live_blocks);
  if (block.part) change_part(*block.part, 1, block.bytes);
  if (SiteUse* const use = sites_.of(block.site)) use->revived(peaks_, block.bytes);
  if (!block.bytes) return;
  bump(live_bytes, block.bytes);
  bump(classes[report_class(block.bytes)].live_blocks);
}

void KindCounters::reset() {
  // A thread that the child does not have may have held it.
  new (&lock) SpinLock;
  for (Counter* counter :
       {&allocations, &frees, &pool_hits, &pool_misses, &driver_allocs, &driver_frees, &driver_syncs, &driver_queries,
        &failed, &live_blocks, &live_bytes, &peak_bytes, &peak_at_ns, &allocated_bytes, &temporary})
    clear(*counter);
  sites_.clear();
  history_ = {};
  worst_ = {};
  peaks_ = 0;
  last_born_ = kNone;
  for (Counter& counter : unpooled) clear(counter);
  for (Counter& counter : waited) clear(counter);
  clear(kept_in_order);
  for (ClassCounters& counters : classes)
    for (Counter* counter : {&counters.allocations, &counters.hits, &counters.live_blocks, &counters.high_water_blocks})
      clear(*counter);
}

[[gnu::cold]] KindFigures KindCounters::figures(const char* name, bool pooled_kind) const {
  KindFigures figures{};
  figures.name = name;
  figures.pooled_kind = pooled_kind;
  figures.allocations = read(allocations);
  figures.frees = read(frees);
  figures.pool_hits = read(pool_hits);
  figures.pool_misses = read(pool_misses);
  figures.driver_allocs = read(driver_allocs);
  figures.driver_frees = read(driver_frees);
  figures.driver_syncs = read(driver_syncs);
  figures.driver_queries = read(driver_queries);
  figures.live_blocks = read(live_blocks);
  figures.live_bytes = read(live_bytes);
  figures.peak_bytes = read(peak_bytes);
  figures.failed = read(failed);
  figures.allocated_bytes = read(allocated_bytes);
  figures.temporary = read(temporary);
  if (figures.peak_bytes) figures.peak_at_s = static_cast<double>(read(peak_at_ns)) * 1e-9;
  {
    const Locked hold(lock);
    figures.over_time = history_.levels(coarse_milliseconds_since_start());
  }
  const auto note_reasons = [](Vector<UnpooledFigure>& of, std::span<const Counter> counters, auto& texts) {
    for (std::size_t i = 0; i < counters.size(); ++i)
      if (const std::uint64_t count = read(counters[i])) of.push_back({texts[i], count});
  };
  note_reasons(figures.unpooled, unpooled, kUnpooledTexts);
  figures.kept_in_order = read(kept_in_order);
  note_reasons(figures.waited, waited, kWaitedTexts);
  for (int i = 0; i < kReportClasses; ++i)
    if (const std::uint64_t used = read(classes[i].allocations))
      figures.classes.push_back({.size_class = i,
                                 .allocations = used,
                                 .hits = read(classes[i].hits),
                                 .live_blocks = read(classes[i].live_blocks),
                                 .cached_blocks = 0,
                                 .cached_bytes = 0,
                                 .high_water_blocks = read(classes[i].high_water_blocks)});
  return figures;
}

[[gnu::cold]] void KindCounters::add_sites(const String& kind, Snapshot& snapshot) {
  constexpr std::size_t kShown = 3;
  Vector<UsingSite> used, looping;
  const std::uint64_t now_ms = coarse_milliseconds_since_start();
  {
    Locked hold(lock);
    sites_.for_each([&](SiteId site, const SiteUse& use) {
      UsingSite figures = use.figures(peaks_);
      if (!figures.allocations) return;
      figures.site = site;
      SiteTrend trend{kind, site, figures.api, use.history().trend(now_ms), {}};
      if (trend.trend.kind == TrendKind::growing) trend.levels = use.history().levels(now_ms);
      snapshot.site_trends.push_back(std::move(trend));
      if (figures.allocates_in_a_loop()) looping.push_back(figures);
      if (figures.peak_bytes) used.push_back(std::move(figures));
    });
  }
  const auto add_most = [&](Vector<UsingSite>& to, Vector<UsingSite>& from, std::uint64_t UsingSite::*figure) {
    std::sort(from.begin(), from.end(), [figure](const UsingSite& a, const UsingSite& b) {
      return a.*figure != b.*figure ? a.*figure > b.*figure : a.site < b.site;
    });
    for (std::size_t i = 0; i < from.size() && i < kShown; ++i) {
      from[i].kind = kind;
      to.push_back(std::move(from[i]));
    }
  };
  add_most(snapshot.at_peak, used, &UsingSite::peak_bytes);
  add_most(snapshot.in_loops, looping, &UsingSite::allocations);
}

void start_clock() {
  find_clock();
  std::uint64_t unset = 0;
  clock_start.compare_exchange_strong(unset, monotonic_ns(), std::memory_order_relaxed);
}

void restart_clock() { clock_start.store(monotonic_ns(), std::memory_order_relaxed); }

std::uint64_t nanoseconds_since_start() {
  const std::uint64_t start = clock_start.load(std::memory_order_relaxed);
  if (!start) [[unlikely]] {
    start_clock();
    return nanoseconds_since_start();
  }
  return monotonic_ns() - start;
}

std::uint64_t coarse_now_ns() { return coarse_monotonic_ns(); }

std::uint64_t coarse_nanoseconds_since_start() { return since_start(coarse_now_ns()); }

std::uint64_t since_start(std::uint64_t coarse_now_ns) {
  const std::uint64_t start = clock_start.load(std::memory_order_relaxed);
  if (!start) [[unlikely]]
    return nanoseconds_since_start();
  // The coarse clock stands still between ticks, so it may lie before a start that was read precisely.
  return coarse_now_ns > start ? coarse_now_ns - start : 0;
}

}  // namespace cistern
