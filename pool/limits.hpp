// How much a pool keeps, and for how long.
#pragma once
#include <atomic>
#include <cstdint>

namespace cistern {

struct PoolLimits {
  std::uint64_t bytes_max = 0;    // cap on what is kept; a chunk larger than this is never kept
  std::uint64_t bytes_min = 0;    // interval trims leave this much
  std::uint64_t interval_ns = 0;  // unused for longer: goes back; 0: never by time
};

// Chunks go back until this much is left, but none that was used within a time.
struct Trim {
  std::uint64_t keep_bytes;
  std::uint64_t unused_for_ns;
  bool settled_only = false;  // chunks that wait for commands stay
};

// Clocks are read before locks are taken: a chunk may have been given later than `now_ns`, and has no age then.
constexpr std::uint64_t elapsed_ns(std::uint64_t since_ns, std::uint64_t now_ns) {
  return since_ns > now_ns ? 0 : now_ns - since_ns;
}
// Whether something was used within a time is `elapsed_ns(given, now) < time`; the time may be any, 0 is never.
static_assert(elapsed_ns(5, 14) < 10 && elapsed_ns(5, 15) == 10 && elapsed_ns(20, 5) < 10 && !(elapsed_ns(20, 5) < 0));
static_assert(elapsed_ns(5, 6) < UINT64_MAX && elapsed_ns(0, UINT64_MAX - 1) < UINT64_MAX);

// A pool calls this with each of its calls. After the end of an interval it gives back the chunks that were unused for
// so long. There is a thread for that only where the user asks for one.
class IntervalTrim {
 public:
  void set(const PoolLimits& limits) {
    interval_ns_.store(limits.interval_ns, std::memory_order_relaxed);
    keep_bytes_.store(limits.bytes_min, std::memory_order_relaxed);
  }

  template <class Pool>
  void trim(Pool& pool, std::uint64_t now_ns) {
    const std::uint64_t interval_ns = interval_ns_.load(std::memory_order_relaxed);
    std::uint64_t trimmed_ns = trimmed_ns_.load(std::memory_order_relaxed);
    if (!interval_ns || elapsed_ns(trimmed_ns, now_ns) < interval_ns) [[likely]]
      return;
    if (trimmed_ns_.compare_exchange_strong(trimmed_ns, now_ns, std::memory_order_relaxed))
      pool.trim(Trim{.keep_bytes = keep_bytes_.load(std::memory_order_relaxed), .unused_for_ns = interval_ns}, now_ns);
  }

 private:
  std::atomic<std::uint64_t> interval_ns_{0}, keep_bytes_{0}, trimmed_ns_{0};
};

}  // namespace cistern
