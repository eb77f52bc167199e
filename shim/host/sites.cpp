// See sites.hpp. A capture happens inside malloc: it must not allocate from the pool again, wait for a lock that
// this thread holds, or open a library; and as malloc may be called on a stack of 4 KiB, it does with 2.
#include "shim/host/sites.hpp"

#include <algorithm>
#include <cmath>

#include "pool/base/lock.hpp"
#include "pool/heap/blocks.hpp"
#include "pool/heap/picture.hpp"
#include "pool/heap/region.hpp"
#include "pool/heap/samples.hpp"
#include "shim/host/counters.hpp"
#include "shim/host/growth.hpp"
#include "shim/host/serving.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/process.hpp"
#include "shim/process/standings.hpp"
#include "shim/process/system_filter.hpp"
#include "shim/process/uncounted.hpp"
#include "stats/counters.hpp"
#include "stats/recording.hpp"
#include "stats/sink.hpp"
#include "stats/sites.hpp"

namespace cistern::host {
namespace {

constexpr char kApi[] = "malloc";

[[gnu::tls_model("initial-exec")]] constinit thread_local bool capturing = false;

std::uint32_t now_ms() { return static_cast<std::uint32_t>(coarse_milliseconds_since_start()); }

// Ours are not the program's blocks; and while this thread holds a lock of ours, the sites' may be among them.
bool capture(std::uint32_t* site, std::uint32_t now) {
  if (sites_are_asleep.load(std::memory_order_relaxed)) return false;
  if (capturing || locks_held > 0 || uncounted_here() || system_calls_are_filtered()) return false;
  capturing = true;
  *site = capture_site(kApi, Calls::frequent);
  capturing = false;
  look_at_growth(now);
  return true;
}

constexpr recording::Kind kRecorded = {0, "host"};

constexpr host_pool::SampleEvents kRecordedEvents = {
    .born =
        [](const void* block, std::size_t requested_bytes, std::uint32_t site, double weight) {
          recording::record_allocation(
              kRecorded, block, requested_bytes, site,
              static_cast<std::uint64_t>(weight * static_cast<double>(recording::Event::kWeight1) + 0.5));
        },
    .resized =
        [](const void* block, std::size_t requested_bytes) {
          if (!recording::is_on()) return;
          recording::record(kRecorded, {.type = recording::EventType::resized,
                                        .address = reinterpret_cast<std::uintptr_t>(block),
                                        .bytes = requested_bytes});
        },
    .died = [](const void* block) { recording::record_free(kRecorded, block); },
};

bool every_block() { return options().sites == "all"; }

std::uint64_t interval_bytes() {
  if (options().sites == "off" || !options().host || !pool_serves()) return 0;
  return every_block() ? 1 : options().host_sample;
}

// Blocks of like size: classes, and those that they would go on with for large blocks.
constexpr unsigned kSizes = 8 + 8 * 42;
unsigned size_of(std::size_t bytes) { return std::min(host_pool::class_of(bytes), kSizes - 1); }

// All live blocks, by size and standing: what samples are drawn from.
struct Census {
  std::uint64_t blocks[kSizes][kStandings] = {};
  Standings by_standing{};

  void add(std::size_t bytes, Standing standing) {
    const auto at = static_cast<std::size_t>(standing);
    ++blocks[size_of(bytes)][at];
    ++by_standing[at].blocks;
    by_standing[at].bytes += bytes;
  }
};

// Of a block as it stands now; a place that held another when they were judged has its standing, which is none at most.
Standing standing_of_sample(const host_pool::Sample& sample) { return standing_of_host_block(sample.block); }

[[gnu::cold]] void take_census(Census& census) {
  const std::size_t bytes = host_pool::Picture::table_bytes();
  void* const table = internal_allocate(bytes);
  host_pool::Picture now;
  {
    const host_pool::RegionHeld held;
    if (now.take(table, bytes))
      now.for_each([&](const host_pool::PictureBlock& block) {
        if (block.live) census.add(block.bytes, standing_of_host_block(reinterpret_cast<const void*>(block.first)));
      });
  }
  internal_deallocate(table, bytes);
}

struct Group {
  double blocks = 0, bytes = 0, bytes_variance = 0;
  std::uint64_t least_bytes = ~std::uint64_t{0}, most_bytes = 0;  // as the program asked
  std::uint32_t first_ms = ~std::uint32_t{0}, last_ms = 0;
};

// So many blocks a sample stands for: those of its size and standing that live are counted, and its fellows are known.
// Those drawn at a greater distance stand for more of them.
class Weights {
 public:
  explicit Weights(const Census& census) : census_(census) {
    if (host_pool::samples_every_block()) return;
    host_pool::visit_samples(
        [](void* weights, const host_pool::Sample& sample) {
          const auto standing = static_cast<std::size_t>(standing_of_sample(sample));
          static_cast<Weights*>(weights)->drawn_[size_of(sample.usable_bytes)][standing] += sample.weight;
        },
        this);
  }
  double of(const host_pool::Sample& sample, Standing standing) const {
    if (host_pool::samples_every_block()) return 1;  // those that have no site are ours
    const unsigned size = size_of(sample.usable_bytes);
    const double drawn = drawn_[size][static_cast<std::size_t>(standing)];
    const auto blocks = static_cast<double>(census_.blocks[size][static_cast<std::size_t>(standing)]);
    return drawn > 0 ? std::max(sample.weight * blocks / drawn, 1.0) : 1;
  }

 private:
  const Census& census_;
  double drawn_[kSizes][kStandings] = {};
};

// The site, whether its blocks were there before this process was forked, and their standing.
std::uint64_t key_of(const host_pool::Sample& sample, Standing standing) {
  return std::uint64_t{sample.site} << 9 | std::uint64_t{sample.inherited} << 8 | static_cast<std::uint8_t>(standing);
}

struct Groups {
  explicit Groups(const Census& census) : weights(census) {}
  Weights weights;
  Map<std::uint64_t, Group> by_site;  // by key_of
  double usable_bytes = 0, requested_bytes = 0;

  // Mostly it is that of the block before.
  Group& of(std::uint64_t key) {
    if (!last_ || key != last_key_) last_ = &by_site[last_key_ = key];
    return *last_;
  }

 private:
  std::uint64_t last_key_ = 0;
  Group* last_ = nullptr;  // where the map has it for good
};

[[gnu::cold]] void add_sample(void* context, const host_pool::Sample& sample) {
  auto& groups = *static_cast<Groups*>(context);
  const Standing standing = standing_of_sample(sample);
  Group& group = groups.of(key_of(sample, standing));
  const double weight = groups.weights.of(sample, standing), usable = static_cast<double>(sample.usable_bytes);
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
  // Who chose a shorter interval than the usual one wants its precision, and pays for it.
  const bool paced = interval >= std::uint64_t{512} * 1024;
  stacks_have_names.store(interval == 1, std::memory_order_relaxed);
  host_pool::start_sampling({interval, paced, capture, now_ms, options().record.empty() ? nullptr : &kRecordedEvents});
}

SiteId site_of_misuse() {
  std::uint32_t site = 0;
  if (host_pool::sample_interval_bytes() == 1) capture(&site, now_ms());
  return site;
}

[[gnu::cold]] void record_failed(std::size_t bytes) {
  if (!recording::is_on() || uncounted_here()) return;
  std::uint32_t site = 0;
  if (host_pool::sample_interval_bytes()) capture(&site, now_ms());
  recording::record_failure(kRecorded, bytes, site);
}

String sites_mode() {
  const std::uint64_t interval = host_pool::sample_interval_bytes();
  if (!interval) return "off";
  if (sites_sleep().asleep) return "asleep";
  if (interval == 1) return sites_sleep().woke_at_ns ? "all-since-wake" : "all";
  StringSink text;
  interval % 1024 ? text.print("{}B", interval) : text.print("{}KiB", interval / 1024);
  return text.text();
}

[[gnu::cold]] LiveSites live_sites() {
  LiveSites live;
  if (!pool_serves()) return live;
  Census census;
  take_census(census);
  live.by_standing = census.by_standing;
  if (!host_pool::sample_interval_bytes()) return live;
  Groups groups(census);
  host_pool::visit_samples(add_sample, &groups);
  if (groups.usable_bytes > 0) live.requested_ratio = groups.requested_bytes / groups.usable_bytes;
  for (const auto& [key, group] : groups.by_site) {
    LeakFigures figures = leak_at(static_cast<SiteId>(key >> 9), "host", "block", kApi);
    figures.leak_class = class_of(static_cast<Standing>(key & 0xff));
    figures.is_host = true;
    figures.inherited = key >> 8 & 1;
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

[[gnu::cold]] void visit_live(VisitLive visit, void* context) {
  struct Asked {
    VisitLive visit;
    void* context;
  } asked{visit, context};
  host_pool::visit_samples(
      [](void* asked, const host_pool::Sample& sample) {
        const auto& [visit, context] = *static_cast<const Asked*>(asked);
        visit(context, {0, -1, reinterpret_cast<std::uintptr_t>(sample.block), sample.requested_bytes, kApi,
                        sample.site, std::uint64_t{sample.born_ms} * 1'000'000});
      },
      &asked);
}

}  // namespace cistern::host
