// Counters of one kind. GPU kinds count on shared atomics (their calls cost microseconds); host counts on shards.
#pragma once
#include <atomic>
#include <cstdint>

#include "pool/base/lock.hpp"
#include "pool/size_class.hpp"
#include "stats/site_uses.hpp"
#include "stats/snapshot.hpp"

namespace cistern {

enum class Unpooled : int {
#define UNPOOLED(name, text) name,
#include "stats/unpooled.def"
#undef UNPOOLED
  count
};

enum class Waited : int {
#define WAITED(name, text) name,
#include "stats/waited.def"
#undef WAITED
  count
};

using Counter = std::atomic<std::uint64_t>;

inline void add(Counter& counter, std::uint64_t n = 1) { counter.fetch_add(n, std::memory_order_relaxed); }
inline void subtract(Counter& counter, std::uint64_t n = 1) { counter.fetch_sub(n, std::memory_order_relaxed); }
inline std::uint64_t read(const Counter& counter) { return counter.load(std::memory_order_relaxed); }
// For counters whose writers hold a lock: no read-modify-write is needed.
inline void bump(Counter& counter, std::uint64_t by = 1) {
  counter.store(read(counter) + by, std::memory_order_relaxed);
}
inline void drop(Counter& counter, std::uint64_t by = 1) {
  counter.store(read(counter) - by, std::memory_order_relaxed);
}
// Raises `peak` to `value`; true when it did.
bool raise_peak(Counter& peak, std::uint64_t value);

struct ClassCounters {
  Counter allocations{0}, hits{0}, live_blocks{0}, high_water_blocks{0};
};

// A part of a kind's memory, as that of one device: counted with the kind's own, under its lock.
struct PartCounters {
  Counter allocations{0}, live_blocks{0}, live_bytes{0}, peak_bytes{0}, peak_at_ns{0};
};

// A block as it is counted. `bytes`: 0 for blocks without memory of their own, which have no class. `handle`: only
// compared.
struct CountedBlock {
  std::uint64_t bytes;
  const char* api = nullptr;
  SiteId site = 0;
  const void* handle = nullptr;
  PartCounters* part = nullptr;
};

// The memory that a kind's source has given. A sum over blocks, made while other threads move them, may count one of
// them twice.
struct Reserved {
  std::uint64_t now_bytes, peak_bytes;
};

// Whether the last block of a GPU kind that this thread got had been used before. KindCounters::block_born() sets it,
// and the C interface reads it as Taken::was_kept. A kind that counts its blocks elsewhere has no kept ones there.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local bool born_from_pool = false;

struct KindCounters {
  Counter driver_allocs{0}, driver_frees{0}, driver_syncs{0}, driver_queries{0};
  Counter failed{0}, pool_misses{0};
  Counter unpooled[static_cast<int>(Unpooled::count)]{};
  // Blocks that were given back while commands used them: those that can be reused immediately, and the others by
  // reason.
  Counter kept_in_order{0}, waited[static_cast<int>(Waited::count)]{};

  // Written under `lock` by the functions below: one lock costs less than six atomic additions. Readable at any time.
  mutable SpinLock lock;
  Counter allocations{0}, frees{0}, pool_hits{0}, live_blocks{0}, live_bytes{0}, peak_bytes{0}, peak_at_ns{0};
  Counter allocated_bytes{0}, temporary{0};
  ClassCounters classes[kReportClasses];

  // One block handed to the program, or given back by it: allocations, frees, live and peak figures, those of the
  // block's class and of its site.
  // `reserved_bytes`: with the block, what the source has given for the kind; 0: not known, or it takes the block back.
  void block_born(const CountedBlock& block, bool pool_hit = false, std::uint64_t reserved_bytes = 0);
  void block_died(const CountedBlock& block);
  // The same for a caller that holds the lock, because it writes its own figures under it. `now_ns`: since the start.
  void block_born_locked(const CountedBlock& block, bool pool_hit, std::uint64_t reserved_bytes, std::uint64_t now_ns);
  void block_died_locked(const CountedBlock& block, std::uint64_t now_ns, std::uint64_t reserved_bytes = 0);
  // A released block whose memory lives on in its children: it died without bytes, then bytes_died when the last is
  // gone, or block_revived when the program gets hold of it again.
  void bytes_died(const CountedBlock& block);
  void block_revived(const CountedBlock& block);
  // Its driver refused to free it: block_died() is taken back.
  void block_did_not_die(const CountedBlock& block);
  void count_unpooled(Unpooled reason) { add(unpooled[static_cast<int>(reason)]); }
  void count_waited(Waited reason) { add(waited[static_cast<int>(reason)]); }
  // A forked child starts clean. Only one thread exists then.
  void reset();
  // All figures but the pool's own (pooled_blocks, pooled_bytes, cached blocks of the classes).
  KindFigures figures(const char* name, bool pooled_kind) const;
  // The sites that a report shows of this kind.
  void add_sites(const String& kind, Snapshot& snapshot);
  // When the largest part of the reserved memory was not live; perhaps now. Absent where that was not noted. Never
  // above the peak.
  std::optional<WorstMoment> worst_moment(const Reserved& reserved);

 private:
  bool is_last_born(const CountedBlock& block);

  void note_reserved(std::uint64_t reserved_bytes, std::uint64_t live_bytes, std::uint64_t now_ns);

  SiteUses sites_;
  History history_;
  WorstMoment worst_{};
  std::uint64_t peaks_ = 0;  // how often there was a new peak
  // No other call was made since. Its complement: who looks for pointers to live memory must find the program's alone.
  std::uintptr_t last_born_ = kNone;
  static constexpr std::uintptr_t kNone = 0;
};

// Nanoseconds since the process started (since the shim first looked: start_clock, or the first question).
std::uint64_t nanoseconds_since_start();
// The same to a few milliseconds, for a few nanoseconds: for what is noted at every allocation.
std::uint64_t coarse_nanoseconds_since_start();
inline std::uint64_t coarse_milliseconds_since_start() { return coarse_nanoseconds_since_start() / 1'000'000; }
// The same since an unspecified moment, for what only compares: it goes on over a fork.
std::uint64_t coarse_now_ns();
// From one to the other: who needs both reads the clock once.
std::uint64_t since_start(std::uint64_t coarse_now_ns);
void start_clock();
// A forked child's time begins at the fork.
void restart_clock();

}  // namespace cistern
