// See sites.hpp. A capture happens inside malloc: it must not allocate from the pool again, wait for a lock that
// this thread holds, or open a library. What the unwinder's own walk cannot do is left to libunwind only where every
// block's site is asked for, and that is opened at the start; samples are few, so libgcc's unwinder does.
#include "shim/host/sites.hpp"

#include <algorithm>

#include "pool/base/lock.hpp"
#include "pool/heap/samples.hpp"
#include "shim/host/counters.hpp"
#include "shim/host/serving.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/process.hpp"
#include "shim/process/system_filter.hpp"
#include "shim/process/uncounted.hpp"
#include "stats/counters.hpp"
#include "stats/sink.hpp"
#include "stats/sites.hpp"

namespace cistern::host {
namespace {

constexpr char kApi[] = "malloc";

[[gnu::tls_model("initial-exec")]] constinit thread_local bool capturing = false;

// Ours are not the program's blocks; and while this thread holds a lock of ours, the sites' may be among them.
bool capture(std::uint32_t* site) {
  if (capturing || locks_held > 0 || uncounted_here() || system_calls_are_filtered()) return false;
  capturing = true;
  *site = capture_site(kApi);
  capturing = false;
  return true;
}

std::uint32_t now_ms() { return static_cast<std::uint32_t>(coarse_nanoseconds_since_start() / 1'000'000); }

bool every_block() { return options().sites == "all"; }

std::uint64_t interval_bytes() {
  if (options().sites == "off" || !options().host || !pool_serves()) return 0;
  return every_block() ? 1 : options().host_sample;
}

struct Group {
  double blocks = 0, bytes = 0;
  std::uint32_t first_ms = ~std::uint32_t{0}, last_ms = 0;
};

struct Groups {
  Map<SiteId, Group> by_site;
  double usable_bytes = 0, requested_bytes = 0;
};

[[gnu::cold]] void add_sample(void* context, const host_pool::Sample& sample) {
  auto& groups = *static_cast<Groups*>(context);
  Group& group = groups.by_site[sample.site];
  group.blocks += sample.weight;
  group.bytes += sample.weight * static_cast<double>(sample.usable_bytes);
  group.first_ms = std::min(group.first_ms, sample.born_ms);
  group.last_ms = std::max(group.last_ms, sample.born_ms);
  groups.usable_bytes += sample.weight * static_cast<double>(sample.usable_bytes);
  groups.requested_bytes += sample.weight * static_cast<double>(sample.requested_bytes);
}

}  // namespace

void start_sites() {
  const std::uint64_t interval = interval_bytes();
  if (!interval) return;
  if (every_block()) {
    Uncounted uncounted;
    prepare_sites(real_dlsym());
  }
  host_pool::start_sampling({interval, capture, now_ms});
}

SiteId site_of_misuse() {
  std::uint32_t site = 0;
  if (host_pool::sample_interval_bytes == 1) capture(&site);
  return site;
}

String sites_mode() {
  const std::uint64_t interval = host_pool::sample_interval_bytes;
  if (!interval) return "off";
  if (interval == 1) return "all";
  StringSink text;
  interval % 1024 ? text.print("{}B", interval) : text.print("{}KiB", interval / 1024);
  return text.text();
}

[[gnu::cold]] LiveSites live_sites() {
  LiveSites live;
  if (!host_pool::sample_interval_bytes) return live;
  Groups groups;
  host_pool::visit_samples(add_sample, &groups);
  if (groups.usable_bytes > 0) live.requested_ratio = groups.requested_bytes / groups.usable_bytes;
  for (const auto& [site, group] : groups.by_site) {
    LeakFigures figures = leak_at(site, "host", "block", kApi);
    figures.leak_class = kLiveAtExit;
    figures.blocks = static_cast<std::uint64_t>(group.blocks + 0.5);
    figures.bytes = static_cast<std::uint64_t>(group.bytes + 0.5);
    figures.first_s = group.first_ms / 1e3;
    figures.last_s = group.last_ms / 1e3;
    live.sites.push_back(std::move(figures));
  }
  return live;
}

}  // namespace cistern::host
