// See counters.hpp.
#include "shim/host/counters.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "shim/process/environment.hpp"
#include "shim/process/options.hpp"
#include "shim/process/uncounted.hpp"
#include "stats/counters.hpp"

namespace cistern::host {
namespace {

using Signed = std::atomic<std::int64_t>;

struct alignas(64) Shard {
  Counter births{0}, born_bytes{0}, deaths{0}, failures{0};
  Signed unsettled_bytes{0};
};

constinit Shard shards[kShards];
constinit Signed settled_bytes{0};
constinit Signed inherited_blocks{0};  // live when this process was forked
constinit Counter peak{0}, peak_at_ns{0};

constinit std::atomic<unsigned> next_shard{0};
[[gnu::tls_model("initial-exec")]] constinit thread_local std::uint8_t shard_of_thread = 0;  // 1 + index; 0: none

enum Decision : int { kUndecided, kOn, kOff };
constinit std::atomic<int> decision{kUndecided};

// The first threads have a shard each, for good; all others share the last one.
unsigned take_shard() {
  constexpr unsigned kLast = kShards - 1;
  if (next_shard.load(std::memory_order_relaxed) >= kLast) return kLast;
  return std::min(next_shard.fetch_add(1, std::memory_order_relaxed), kLast);
}

Shard& own_shard() {
  if (shard_of_thread == 0) [[unlikely]]
    shard_of_thread = static_cast<std::uint8_t>(1 + take_shard());
  return shards[shard_of_thread - 1];
}

// In a shard that only this thread writes: one instruction, which a signal's handler that counts too cannot part, but
// not a locked one, which costs more than the allocation.
template <class Number>
void add_to(const Shard& shard, std::atomic<Number>& counter, Number n) {
#if defined(__x86_64__)
  if (&shard != &shards[kShards - 1]) [[likely]] {
    asm("addq %1, %0" : "+m"(counter) : "er"(n) : "cc");
    return;
  }
#endif
  counter.fetch_add(n, std::memory_order_relaxed);
}

int decide() {
  if (!early_environment()) return kUndecided;
  const char* value = environment_variable("CISTERN_HOST");
  const int decided = switched_off() || (value && parse_on_off(value) == false) ? kOff : kOn;
  decision.store(decided, std::memory_order_relaxed);
  return decided;
}

std::uint64_t not_negative(std::int64_t value) { return value > 0 ? static_cast<std::uint64_t>(value) : 0; }

void settle(std::int64_t bytes) {
  const std::int64_t now = settled_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (bytes > 0 && raise_peak(peak, not_negative(now)))
    peak_at_ns.store(nanoseconds_since_start(), std::memory_order_relaxed);
}

void move_bytes(Shard& shard, std::int64_t bytes) {
  add_to(shard, shard.unsettled_bytes, bytes);
  const std::int64_t unsettled = shard.unsettled_bytes.load(std::memory_order_relaxed);
  if (unsettled >= kSettleBytes || unsettled <= -kSettleBytes) [[unlikely]]
    settle(shard.unsettled_bytes.exchange(0, std::memory_order_relaxed));
}

struct Totals {
  std::uint64_t births = 0, born_bytes = 0, deaths = 0, failures = 0;
  std::int64_t live_bytes = 0;
  std::int64_t live_blocks() const {
    return inherited_blocks.load(std::memory_order_relaxed) + static_cast<std::int64_t>(births - deaths);
  }
};

Totals totals() {
  Totals sum;
  sum.live_bytes = settled_bytes.load(std::memory_order_relaxed);
  for (const Shard& shard : shards) {
    sum.births += read(shard.births);
    sum.born_bytes += read(shard.born_bytes);
    sum.deaths += read(shard.deaths);
    sum.failures += read(shard.failures);
    sum.live_bytes += shard.unsettled_bytes.load(std::memory_order_relaxed);
  }
  return sum;
}

}  // namespace

bool counting() {
  int decided = decision.load(std::memory_order_relaxed);
  if (decided == kUndecided) [[unlikely]]
    decided = decide();
  return decided != kOff && uncounted_depth == 0;
}

void count_nothing() { decision.store(kOff, std::memory_order_relaxed); }

void count_birth(std::size_t usable_bytes) {
  Shard& shard = own_shard();
  add_to(shard, shard.births, std::uint64_t{1});
  add_to(shard, shard.born_bytes, std::uint64_t{usable_bytes});
  move_bytes(shard, static_cast<std::int64_t>(usable_bytes));
}

void count_death(std::size_t usable_bytes) {
  Shard& shard = own_shard();
  add_to(shard, shard.deaths, std::uint64_t{1});
  move_bytes(shard, -static_cast<std::int64_t>(usable_bytes));
}

void count_resize(std::size_t usable_before, std::size_t usable_after) {
  Shard& shard = own_shard();
  if (usable_after > usable_before) add_to(shard, shard.born_bytes, std::uint64_t{usable_after - usable_before});
  move_bytes(shard, static_cast<std::int64_t>(usable_after) - static_cast<std::int64_t>(usable_before));
}

void count_failure() { add(own_shard().failures); }

bool counting_is_off() {
  const int decided = decision.load(std::memory_order_relaxed);
  return (decided == kUndecided ? decide() : decided) == kOff;
}

KindFigures counted_figures() {
  KindFigures figures{};
  figures.name = "host";
  figures.is_host = true;
  const Totals sum = totals();
  figures.allocations = sum.births;
  figures.allocated_bytes = sum.born_bytes;
  figures.frees = sum.deaths;
  figures.failed = sum.failures;
  figures.live_blocks = not_negative(sum.live_blocks());
  figures.live_bytes = not_negative(sum.live_bytes);
  raise_peak(peak, figures.live_bytes);
  figures.peak_bytes = read(peak);
  if (const std::uint64_t at = read(peak_at_ns)) figures.peak_at_s = static_cast<double>(at) / 1e9;
  return figures;
}

// The child's counts start at zero; the blocks that it was born with are still live in it, so live figures go on.
void reset_counters() {
  const Totals sum = totals();
  for (Shard& shard : shards) {
    shard.births.store(0, std::memory_order_relaxed);
    shard.born_bytes.store(0, std::memory_order_relaxed);
    shard.deaths.store(0, std::memory_order_relaxed);
    shard.failures.store(0, std::memory_order_relaxed);
    shard.unsettled_bytes.store(0, std::memory_order_relaxed);
  }
  settled_bytes.store(sum.live_bytes, std::memory_order_relaxed);
  inherited_blocks.store(sum.live_blocks(), std::memory_order_relaxed);
  peak.store(not_negative(sum.live_bytes), std::memory_order_relaxed);
  peak_at_ns.store(0, std::memory_order_relaxed);
}

}  // namespace cistern::host
