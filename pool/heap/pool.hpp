// The host pool as one object: everything that it knows besides what threads have for themselves (thread_heap.hpp) and
// what the descriptors of its pages say (layout.hpp). Each part has one duty, and one file that changes it.
//
// All of it is zero at the start, so it costs a process no memory before it is used. Parts begin at cache lines of
// their own, and so do members that threads read without the lock beside which they stand.
#pragma once
#include <pthread.h>

#include <algorithm>
#include <optional>

#include "pool/base/lock.hpp"
#include "pool/heap/bins.hpp"
#include "pool/heap/shard_lock.hpp"
#include "pool/heap/system.hpp"
#include "pool/heap/thread_heap.hpp"

namespace cistern::host_pool {

constexpr std::size_t kCacheLine = 64;

// --- Where the pool's memory lies (pages.hpp). The fast path reads it; it changes when the window grows.
struct alignas(kCacheLine) Window {
  std::uintptr_t base;         // address of slice 0, in which nothing lies
  Page* pages;                 // descriptor of slice 0
  std::uintptr_t slice_limit;  // descriptors of slices below can be read
  std::uintptr_t free_mark;    // secret
};

// --- Spans of slices (region.cpp)
enum Sort : std::uint8_t { kClean, kDirty };

// The most of a quantity in this period and in the one before.
struct Lately {
  static constexpr std::uint64_t kPeriodNs = 10'000'000'000;
  std::uint64_t now = 0, before = 0, period_end_ns = 0;

  void begin_period(std::uint64_t now_ns, std::uint64_t at_first) {
    if (now_ns < period_end_ns) return;
    before = now_ns < period_end_ns + kPeriodNs ? now : at_first;
    now = at_first;
    period_end_ns = now_ns + kPeriodNs;
  }
  std::uint64_t most() const { return std::max(now, before); }
};

struct alignas(kCacheLine) Region {
  Lock lock;
  std::atomic<Slice> set_aside_first;  // released while a thread forked

  // Threads read these without the lock.
  alignas(kCacheLine) std::atomic<bool> memory_is_tight;  // addresses are scarce, and a good part of them is in use
  std::atomic<bool> work_is_left, word_is_left, limits_are_new;
  std::atomic<unsigned> short_spans;
  std::atomic<std::uint64_t> short_bytes;     // these are not mapped, but their slices count as in use
  std::atomic<std::uint64_t> regrets_end_ns;  // 0: there are no regrets
  ChunkAdvice chunk_advice;                   // atomic

  // The lock guards what follows.
  alignas(kCacheLine) Slice window_top;  // the slice behind the last that is mapped; 0: there is no window
  Slice window_end;
  Slice chosen_spans, spans_in_work;
  Slice holes;                // unmapped, and free to be mapped again
  bool addresses_are_scarce;  // the process has a limit of `limit_slices`
  std::uint64_t limit_slices;
  std::uint64_t mapped_slices, free_slices[2];
  std::uint64_t away_slices;  // mapped, and chosen or worked on
  std::uint64_t reserving;    // slices that are being made dirty
  std::uint64_t dirty_min;    // reserved
  std::uint64_t peak_in_use_bytes, peak_at_ns, times_grown, times_given_back, spans_fresh, peak_reserved;
  std::uint64_t idle_limit_ns, next_look_ns;
  Lately in_use_lately;  // a program may soon want again what it wanted not long ago
  Lately regretted;      // slices
  std::uint64_t last_given_back, given_back_ns;
  std::optional<Machine> machine;
  Bins bins[2];
};

// --- Blocks with call sites (sampling.cpp, samples.cpp, samples_in_place.cpp)
// What happens to blocks that have a site, for a recording. `weight`: so many blocks it stands for.
struct SampleEvents {
  void (*born)(const void* block, std::size_t requested_bytes, std::uint32_t site, double weight);
  void (*resized)(const void* block, std::size_t requested_bytes);
  void (*died)(const void* block);  // perhaps under locks of the pool
};
struct SamplePolicy {
  std::uint64_t interval_bytes;
  bool paced;
  // Interns the caller's stack; false: this block is not to be sampled, because the unwinder allocated it, for example.
  bool (*capture)(std::uint32_t* site, std::uint32_t now_ms);
  std::uint32_t (*now_ms)();
  const SampleEvents* events = nullptr;
};

// Pages with free blocks are in the queue of their class; full ones are in none. In `all` mode every malloc and free
// takes one of the locks, for a few dozen instructions.
struct alignas(kCacheLine) Shard {
  ShardLock lock;
  Slice partial[kClasses];
  std::uint64_t handed_out[kClasses], live[kClasses], temporary;
};
constexpr unsigned kShards = 8;

struct SampleInPlace;

struct alignas(kCacheLine) Samples {
  std::uint64_t interval_bytes;  // 0: no samples are taken
  SamplePolicy policy;
  std::uint8_t forks_so_far;               // how many forks lie between the first process and this one, modulo 256
  std::atomic<Block*> set_aside_first;     // freed while a thread forked
  alignas(kCacheLine) Lock in_place_lock;  // guards the table of blocks that are sampled where they lie
  SampleInPlace* in_place;
  std::size_t in_place_mask, in_place_used;
};

// --- Counts of what no heap counts (blocks.cpp)
struct alignas(kCacheLine) Counts {
  std::atomic<std::uint64_t> large_allocations, large_allocated_bytes, moves;
};

// --- What was counted when this process was forked (heap_account.cpp, account.cpp)
struct alignas(kCacheLine) CountedAtFork {
  std::uint64_t allocations[kClasses], large_allocations, large_bytes;
  std::uint64_t moves, inherited_blocks, temporary;
};

// --- What went back to the system inside pages of blocks (purge.cpp)
// Of a page, at the place of its first slice.
struct PageNotes {
  Relaxed<std::uint64_t> purged;  // a bit for each piece
  std::uint64_t seen;             // the blocks handed out when the owner last looked
};
constexpr unsigned kNotesTogether = 1 << 14;
// Why free memory goes back.
enum class Why : std::uint8_t { asked, age, pressure, maintenance };
constexpr unsigned kWhys = 4;
struct alignas(kCacheLine) Purges {
  std::atomic<std::uint64_t> pieces;   // that are purged now
  std::atomic<std::uint64_t> idle_ns;  // unused for so long, memory goes back; 0: never
  std::atomic<std::uint32_t> trims;
  std::atomic<Why> why_trimmed;                           // the last of these
  std::atomic<std::uint64_t> returned[kWhys];             // bytes
  std::atomic<bool (*)()> is_scarce;                      // null: there is no answer
  std::atomic<std::uint64_t> next_question_ns, pause_ns;  // when that is asked next, and how long after the last time
  std::atomic<PageNotes*> notes[kSlicesMax / kNotesTogether];  // made when they are first wanted
};

// --- Heaps of all threads (threads.cpp)
struct alignas(kCacheLine) ThreadHeaps {
  Lock lock;  // guards the orphanage, parked and unused heaps; taken before the region's lock
  Heap* parked;
  Heap* unused;
  Heap* late;

  // Threads read these without the lock.
  alignas(kCacheLine) std::atomic<unsigned> parked_count;
  std::atomic<std::uint32_t> parked_pages;
  std::atomic<unsigned> made;  // besides the orphanage
  std::atomic<bool> reclaim_is_due;
  std::atomic<bool> key_made;
  pthread_key_t end_key;

  alignas(kCacheLine) Heap orphanage;  // heap 0
  std::atomic<Heap*> by_id[kHeapsMax];
};

struct HostPool {
  Window window;
  Region region;
  Samples samples;
  Counts counts;
  CountedAtFork counted_at_fork;
  Shard shards[kShards];
  Purges purges;
  ThreadHeaps threads;
};

// Hidden where it is declared, so that code addresses the members directly.
[[gnu::visibility("hidden")]] extern constinit HostPool the_pool;

inline void note_returned(Why why, std::uint64_t bytes) {
  the_pool.purges.returned[static_cast<unsigned>(why)].fetch_add(bytes, std::memory_order_relaxed);
}
inline std::uint64_t returned_bytes(Why why) {
  return the_pool.purges.returned[static_cast<unsigned>(why)].load(std::memory_order_relaxed);
}

}  // namespace cistern::host_pool
