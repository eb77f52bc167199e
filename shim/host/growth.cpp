// See growth.hpp.
#include "shim/host/growth.hpp"

#include <algorithm>
#include <iterator>

#include "pool/base/forked.hpp"
#include "pool/base/lock.hpp"
#include "pool/heap/account.hpp"
#include "pool/heap/samples.hpp"
#include "stats/counters.hpp"
#include "stats/history.hpp"
#include "stats/site_table.hpp"

namespace cistern::host {
namespace {

// Looks take a 200th of the time at most; the first, without which nothing is said of a site that grew early and
// stays, a 20th.
constexpr std::uint64_t kFirstMs = 20, kLooksPerRun = 256, kPartOfTime = 200, kPartOfTimeAtFirst = 20;
constexpr unsigned kLooksMin = 12;
constexpr char kApi[] = "malloc";

struct LiveOfSite {
  History history;
  double blocks, bytes;                // of the look that goes on
  std::uint32_t newest_ms, oldest_ms;  // of those that were seen alive
  bool seen;
  double factor;  // 0: not known. What is live by size class, which is exact, for what samples made of it
  double peak_blocks, peak_bytes;
};

constinit Lock look_lock;  // guards what follows, but for next_look_ms
constinit SiteTable<LiveOfSite> live_of_sites;
constinit History all_sites;
constinit double most_bytes = 0;
constinit unsigned looks = 0;
constinit std::atomic<std::uint32_t> next_look_ms{kFirstMs};

// A sample stands for as many blocks as were not drawn, on average.
void add_sample(void*, const host_pool::Sample& sample) {
  LiveOfSite* const site = live_of_sites.of(sample.site);
  if (!site) return;
  site->blocks += sample.weight;
  site->bytes += sample.weight * static_cast<double>(sample.usable_bytes);
  if (!site->seen || sample.born_ms < site->oldest_ms) site->oldest_ms = sample.born_ms;
  site->newest_ms = std::max(site->newest_ms, sample.born_ms);
  site->seen = true;
}

void look(std::uint32_t now_ms, host_pool::AtFork at_fork) {
  live_of_sites.for_each([](SiteId, LiveOfSite& site) { site.blocks = site.bytes = 0; });
  if (!host_pool::visit_samples(add_sample, nullptr, at_fork)) return;
  ++looks;
  double all = 0;
  live_of_sites.for_each([&](SiteId, LiveOfSite& site) {
    all += site.bytes;
    if (!site.seen) return;
    site.history.begin(site.oldest_ms);
    site.history.note(now_ms, static_cast<std::uint64_t>(site.bytes + 0.5), site.newest_ms);
  });
  all_sites.note(now_ms, static_cast<std::uint64_t>(all + 0.5), now_ms);
  if (all <= most_bytes) return;
  most_bytes = all;
  live_of_sites.for_each([](SiteId, LiveOfSite& site) {
    site.peak_blocks = site.blocks;
    site.peak_bytes = site.bytes;
  });
}

[[gnu::cold]] void look_now(std::uint32_t now_ms) {
  const LockedUnlessForking hold(look_lock);
  if (!hold || now_ms < next_look_ms.load(std::memory_order_relaxed)) return;
  const std::uint64_t began_ns = nanoseconds_since_start();
  look(now_ms, host_pool::AtFork::go_on);
  const std::uint64_t took_us = (nanoseconds_since_start() - began_ns) / 1000;
  const std::uint64_t part = looks < kLooksMin ? kPartOfTimeAtFirst : kPartOfTime;
  const std::uint64_t pause_ms = std::max({std::uint64_t{2}, now_ms / kLooksPerRun, part * took_us / 1000});
  next_look_ms.store(now_ms + static_cast<std::uint32_t>(pause_ms), std::memory_order_relaxed);
}

}  // namespace

void look_at_growth(std::uint32_t now_ms) {
  if (now_ms >= next_look_ms.load(std::memory_order_relaxed) && !histories_ended_ms.load(std::memory_order_relaxed))
      [[unlikely]]
    look_now(now_ms);
}

namespace {

// Which block of several is drawn depends a little on those before it: where sizes take turns, some are drawn too
// often. What lives of each size class is known, and tells by how much.
struct Correction {
  double drawn[host_pool::kClasses] = {}, factor[host_pool::kClasses] = {};
};

unsigned class_of_sample(const host_pool::Sample& sample) {
  const unsigned size_class = host_pool::class_of(sample.usable_bytes);
  return sample.weight > 1 && size_class < host_pool::kClasses ? size_class : host_pool::kClasses;
}

[[gnu::cold]] void correct_samples() {
  static constinit Correction correction;  // under the lock; too large for a stack
  correction = {};
  host_pool::visit_samples(
      [](void*, const host_pool::Sample& sample) {
        if (const unsigned id = class_of_sample(sample); id < host_pool::kClasses)
          correction.drawn[id] += sample.weight;
      },
      nullptr);
  const host_pool::Account account = host_pool::account();
  for (unsigned id = 0; id < host_pool::kClasses; ++id) {
    const auto live = static_cast<double>(account.classes[id].live_blocks);
    if (correction.drawn[id] > 0) correction.factor[id] = live / correction.drawn[id];
  }
  live_of_sites.for_each([](SiteId, LiveOfSite& site) { site.factor = 0; });
  host_pool::visit_samples(
      [](void*, const host_pool::Sample& sample) {
        LiveOfSite* const site = live_of_sites.of(sample.site);
        if (!site || site->bytes <= 0) return;
        const unsigned id = class_of_sample(sample);
        const double bytes = sample.weight * static_cast<double>(sample.usable_bytes);
        site->factor += bytes * (id < host_pool::kClasses ? correction.factor[id] : 1) / site->bytes;
      },
      nullptr);
}

std::uint64_t scaled(double value, const LiveOfSite& site) {
  return static_cast<std::uint64_t>(value * (site.factor > 0 ? site.factor : 1) + 0.5);
}

}  // namespace

[[gnu::cold]] void look_at_growth_once_more() {
  const Locked hold(look_lock);
  if (!host_pool::sample_interval_bytes() || histories_ended_ms.load()) return;
  look(static_cast<std::uint32_t>(coarse_milliseconds_since_start()), host_pool::AtFork::wait);
  if (!host_pool::samples_every_block()) correct_samples();
}

[[gnu::cold]] void add_growth(std::uint64_t peak_bytes_max, Snapshot& snapshot) {
  constexpr std::size_t kShown = 3;
  if (!host_pool::sample_interval_bytes()) return;
  look_at_growth_once_more();
  const Locked hold(look_lock);
  const std::uint64_t now_ms = coarse_milliseconds_since_start();
  snapshot.host_over_time = all_sites.levels(now_ms);
  Vector<UsingSite> at_peak;
  live_of_sites.for_each([&](SiteId site, const LiveOfSite& live) {
    if (!live.seen) return;
    snapshot.site_trends.push_back({"host", site, kApi, live.history.trend(now_ms), live.history.levels(now_ms), true});
    SiteTrend& trend = snapshot.site_trends.back();
    for (Vector<std::uint64_t>* const levels : {&trend.levels.least, &trend.levels.last})
      for (std::uint64_t& level : *levels) level = scaled(static_cast<double>(level), live);
    if (live.factor > 0) trend.trend.bytes_per_s *= live.factor, trend.trend.bytes *= live.factor;
    // Seldom looked at, it may well have changed in between.
    if (trend.trend.kind == TrendKind::constant && (looks < kLooksMin || rose_at_last(trend.levels))) trend.trend = {};
    if (live.peak_bytes < 1) return;
    UsingSite& row = at_peak.emplace_back();
    row.kind = "host";
    row.api = kApi;
    row.site = site;
    row.peak_blocks = scaled(live.peak_blocks, live);
    row.peak_bytes = std::min(scaled(live.peak_bytes, live), peak_bytes_max);
  });
  std::sort(at_peak.begin(), at_peak.end(),
            [](const UsingSite& a, const UsingSite& b) { return a.peak_bytes > b.peak_bytes; });
  if (at_peak.empty()) return;
  snapshot.estimated.push_back("at_peak.host");
  // What samples stand for may be more than there was.
  snapshot.host_peak_seen = std::min(static_cast<std::uint64_t>(most_bytes + 0.5), peak_bytes_max);
  at_peak.resize(std::min(at_peak.size(), kShown));
  std::move(at_peak.begin(), at_peak.end(), std::back_inserter(snapshot.at_peak));
}

void growth_before_fork() { look_lock.lock_for_fork(); }
void growth_after_fork() { look_lock.unlock_after_fork(); }

void growth_after_fork_in_child() {
  if (looks) {
    live_of_sites.clear();
    all_sites = {};
    most_bytes = 0;
    looks = 0;
  }
  set_in_child(next_look_ms, kFirstMs);
  growth_after_fork();
}

}  // namespace cistern::host
