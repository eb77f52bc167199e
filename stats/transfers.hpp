// The transfer table of one kind: copies between host and device by direction, kind of host memory, way of waiting and
// call site. Thread-safe.
#pragma once
#include <cstdint>

#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"
#include "stats/copy_direction.hpp"
#include "stats/recording.hpp"
#include "stats/sites.hpp"

namespace cistern {

struct TransferKey {
  CopyDirection direction;
  bool pageable;
  bool asynchronous;
  SiteId site;
  const char* api;
  bool operator==(const TransferKey&) const = default;
};
struct TransferKeyHash {
  std::size_t operator()(const TransferKey& key) const {
    std::uint64_t hash = key.site;
    hash = hash * 8 + static_cast<std::uint64_t>(key.direction);
    hash = hash * 4 + (key.pageable ? 2 : 0) + (key.asynchronous ? 1 : 0);
    return (hash ^ reinterpret_cast<std::uintptr_t>(key.api)) * 0x9E3779B97F4A7C15ull >> 16;
  }
};

// Copies of one call, as a recording has them. `stream`: null: not known.
inline void record_copy(const recording::Kind& kind, const TransferKey& key, std::uint64_t count, std::uint64_t bytes,
                        const void* stream) {
  if (!recording::is_on()) [[likely]]
    return;
  recording::record(kind, {.type = recording::EventType::copy,
                           .direction = static_cast<std::uint8_t>(key.direction),
                           .pageable = key.pageable,
                           .asynchronous = key.asynchronous,
                           .has_stream = stream != nullptr,
                           .site = key.site,
                           .count = static_cast<std::uint32_t>(count),
                           .bytes = bytes,
                           .stream = reinterpret_cast<std::uintptr_t>(stream)});
}

class Transfers {
 public:
  void add(const TransferKey& key, std::uint64_t count, std::uint64_t bytes);
  // The time of copies that were added: those that a thread waited for, or that the driver timed.
  void add_time(const TransferKey& key, std::uint64_t count, std::uint64_t bytes, std::uint64_t nanoseconds);
  // An address or a pitch of the copy is none that is easy to copy.
  void add_unaligned(const TransferKey& key);
  // A copy back to the host whose bytes were compared, and whether they were as they had been sent.
  void add_return(const TransferKey& key, bool unchanged);
  // The driver refused them.
  void add_failed(const TransferKey& key, std::uint64_t count);
  void add_to(Snapshot& snapshot, const char* kind);
  void clear();

  // The last action of the calling thread: a copy that goes on, other work on a stream, a mark behind that work, or a
  // wait. A wait is for a stream, a mark, or everything (null).
  void last_was(const TransferKey& key, const void* stream);
  static void last_was_no_copy() { last.copy = nullptr; }
  static void marks(const void* mark, const void* stream) {
    if (last.copy && last.stream == stream) last.mark = mark;
  }
  static void waits(const void* for_what);

  void before_fork() { lock_.lock_for_fork(); }
  void after_fork() { lock_.unlock_after_fork(); }

 private:
  struct Totals {
    std::uint64_t count = 0, bytes = 0, failed = 0, timed_bytes = 0, timed_ns = 0;
    std::uint64_t unaligned = 0, waited_for = 0, returns = 0, unchanged = 0;
  };
  // Copies by the rate that each was done at, in eighths of a power of two.
  class Rates {
   public:
    void add(std::uint64_t bytes, std::uint64_t nanoseconds);
    // Bytes a second that so many of all copies do not exceed; nothing: there were too few.
    std::optional<double> percentile(double part) const;
    double best() const { return best_; }

   private:
    static constexpr unsigned kSteps = 8, kRates = 40 * kSteps;  // from 1 B/s to 1 TiB/s
    std::uint32_t counts_[kRates] = {};
    std::uint64_t count_ = 0;
    double best_ = 0;  // of large copies
  };
  static constexpr unsigned kDirections = static_cast<unsigned>(CopyDirection::count);

  Rates& rates_of(const TransferKey& key) {
    return rates_[static_cast<unsigned>(key.direction)][key.pageable][key.asynchronous];
  }

  double best_rate(CopyDirection direction) const;

  // A row of one of these tables, which stays where it is.
  struct Last {
    Totals* copy;
    const void *stream, *mark;
  };
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local Last last = {nullptr, nullptr, nullptr};

  Lock lock_;
  Map<TransferKey, Totals, TransferKeyHash> table_;
  Rates rates_[kDirections][2][2];
};

}  // namespace cistern
