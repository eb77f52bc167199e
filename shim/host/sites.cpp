// See sites.hpp. A capture happens inside malloc: it must not allocate from the pool again, wait for a lock that
// this thread holds, or open a library. What the unwinder's own walk cannot do is left to libunwind only where every
// block's site is asked for, and that is opened at the start; samples are few, so libgcc's unwinder does.
#include "shim/host/sites.hpp"

#include <algorithm>
#include <cmath>

#include "pool/base/lock.hpp"
#include "pool/heap/account.hpp"
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
  double blocks = 0, bytes = 0, bytes_variance = 0;
  std::uint64_t least_bytes = ~std::uint64_t{0}, most_bytes = 0;  // as the program asked
  std::uint32_t first_ms = ~std::uint32_t{0}, last_ms = 0;
};

// So many blocks a sample stands for; one, where all are samples. Those up to kSmallMax are counted, by class: their
// samples stand for the blocks that live, and for no others. Of larger ones that were drawn all bytes are known.
class Weights {
 public:
  Weights() {
    if (host_pool::samples_every_block()) return;
    host_pool::visit_samples(
        [](void* counts, const host_pool::Sample& sample) { static_cast<Weights*>(counts)->add(sample); }, this);
    const host_pool::Account account = host_pool::account();
    for (unsigned id = 0; id < host_pool::kClasses; ++id)
      if (samples_[id])
        weights_[id] = std::max(1.0, static_cast<double>(account.classes[id].live_blocks) / samples_[id]);
    const double drawn = static_cast<double>(account.large_bytes) - certain_large_bytes_;
    if (large_bytes_ > 0) large_scale_ = std::max(0.0, drawn) / large_bytes_;
  }
  double of(const host_pool::Sample& sample) const {
    if (sample.usable_bytes > host_pool::kSmallMax) return std::max(1.0, sample.weight * large_scale_);
    const double weight = weights_[host_pool::class_of(sample.usable_bytes)];
    return weight > 0 ? weight : sample.weight;  // the first of its class, made meanwhile
  }

 private:
  void add(const host_pool::Sample& sample) {
    if (sample.usable_bytes <= host_pool::kSmallMax) {
      ++samples_[host_pool::class_of(sample.usable_bytes)];
    } else {
      const double bytes = static_cast<double>(sample.usable_bytes);
      (sample.weight > 1 ? large_bytes_ : certain_large_bytes_) += sample.weight * bytes;
    }
  }

  std::uint32_t samples_[host_pool::kClasses] = {};
  double weights_[host_pool::kClasses] = {};
  double large_bytes_ = 0, certain_large_bytes_ = 0, large_scale_ = 1;  // as drawn, and those that always are
};

struct Groups {
  Weights weights;
  Map<SiteId, Group> by_site;
  double usable_bytes = 0, requested_bytes = 0;
};

[[gnu::cold]] void add_sample(void* context, const host_pool::Sample& sample) {
  auto& groups = *static_cast<Groups*>(context);
  Group& group = groups.by_site[sample.site];
  const double weight = groups.weights.of(sample), usable = static_cast<double>(sample.usable_bytes);
  group.blocks += weight;
  group.bytes += weight * usable;
  group.bytes_variance += weight * (weight - 1) * usable * usable;  // drawn with a probability of 1 / weight
  group.least_bytes = std::min<std::uint64_t>(group.least_bytes, sample.requested_bytes);
  group.most_bytes = std::max<std::uint64_t>(group.most_bytes, sample.requested_bytes);
  group.first_ms = std::min(group.first_ms, sample.born_ms);
  group.last_ms = std::max(group.last_ms, sample.born_ms);
  groups.usable_bytes += weight * usable;
  groups.requested_bytes += weight * static_cast<double>(sample.requested_bytes);
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
    figures.block_bytes = {group.least_bytes, group.most_bytes};
    if (group.bytes_variance > 0)
      figures.bytes_error = static_cast<std::uint64_t>(std::sqrt(group.bytes_variance) + 0.5);
    figures.first_s = group.first_ms / 1e3;
    figures.last_s = group.last_ms / 1e3;
    live.sites.push_back(std::move(figures));
  }
  return live;
}

}  // namespace cistern::host
