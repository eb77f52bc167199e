// See maintenance.hpp.
#include "shim/core/maintenance.hpp"

#include <algorithm>
#include <atomic>

#include "cistern/cistern.h"
#include "pool/base/clock.hpp"
#include "pool/base/lock.hpp"
#include "pool/base/system_call.hpp"
#include "pool/heap/purge.hpp"
#include "pool/heap/threads.hpp"
#include "shim/core/requests.hpp"
#include "shim/host/hooks/hooks.hpp"
#include "shim/host/serving.hpp"
#include "shim/library/segments.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/pressure.hpp"
#include "shim/process/process.hpp"
#include "shim/process/system_filter.hpp"
#include "shim/process/uncounted.hpp"

namespace cistern::maintenance {
namespace {

constexpr std::uint64_t kIntervalMinNs = 10'000'000;

constinit std::atomic<int> process{0};  // that has the thread
constinit std::atomic<bool> exits{false};
constinit std::atomic<std::uint64_t> next_trim_ns{0};

std::uint64_t interval_ns() { return std::max<std::uint64_t>(options().maintenance, kIntervalMinNs); }

bool is_scarce() { return memory_pressure.is_near_limit(coarse_monotonic_ns()) || memory_pressure.is_stalled(); }

template <class Visit>
void for_each_pool(Visit visit) {
  for (const Kind* kind : kinds())
    for (const KindPool& pool : kind->pools) visit(pool);
}

// Pinned memory is the machine's.
void relieve() {
  if (!host_pool::relieve_if_scarce(is_scarce)) return;
  for_each_pool([](const KindPool& pool) {
    if (pool.id == CISTERN_PINNED) pool.trim(0, 0);
  });
}

void trim(std::uint64_t unused_ns) {
  host_pool::trim_unused(unused_ns);
  for_each_pool([&](const KindPool& pool) {
    if (pool.left_by_time) pool.trim(options().*pool.left_by_time, unused_ns);
  });
  library::trim_all_segments(nullptr, library::Segments::not_needed_since_the_call_before);
}

}  // namespace

void start() {
  if (switched_off() || exits.load() || phase() != Phase::running || system_calls_are_filtered()) return;
  if (locks_held || host::inside_allocator() || !(host::pool_serves() || gpu_state_made.load())) return;
  if (process.exchange(this_process()) != this_process()) next_trim_ns = coarse_monotonic_ns() + interval_ns();
  if (!await_requests()) process = 0;
}

void end_at_exit() {
  if (system_calls_are_filtered() || process.load() != this_process()) return;
  exits = true;
  if (!locks_held && !host::inside_allocator()) dismiss_requests_at_exit();
}

std::uint64_t work() {
  if (!process.load() || exits.load()) return UINT64_MAX;
  const Uncounted uncounted;
  relieve();
  std::uint64_t now = coarse_monotonic_ns();
  if (now >= next_trim_ns.load()) {
    trim(interval_ns());
    now = coarse_monotonic_ns();
    next_trim_ns = now + interval_ns();
  }
  return next_trim_ns.load() - now;
}

}  // namespace cistern::maintenance
