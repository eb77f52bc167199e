// A pool of whole chunks in two tiers: a small cache per thread before a shared recycling pool.
//
//   take(key) -> thread cache -> shared bins -> quarantined chunks that have settled -> another thread's cache
//   take_near(key, bytes_max) -> the smallest shared chunk that is large enough
//   both have none -> the caller gets a new chunk from the source (pool/acquire.hpp)
//   give(key, chunk) -> thread cache -> shared pool, which releases its oldest when over the cap
//   give_up(key, bytes), give_up_those(goes, bytes) -> the largest and oldest of the shared pool, else of the caches
//   give_waiting(key, chunk, fence) -> the shared pool's quarantine
//
// The thread caches together hold at most a quarter of the cap, the shared tier the rest. Chunks unused for an interval
// go back to the source, whenever a call comes after its end; there is no thread of our own.
#pragma once
#include <algorithm>

#include "pool/recycle_pool.hpp"
#include "pool/thread_cache.hpp"

namespace cistern {

template <Source S>
class TieredPool {
 public:
  using Chunk = typename S::Chunk;
  using Fence = typename S::Fence;
  using Key = PoolKey;
  using Answer = typename RecyclePool<S>::Answer;

  explicit TieredPool(S& source) : shared_(source) {}

  void set_limits(const PoolLimits& limits) {
    interval_.set(limits);
    thread_bytes_max_ = limits.bytes_max / 4;
    shared_.set_limits({.bytes_max = limits.bytes_max - thread_bytes_max_});
  }

  std::optional<Chunk> take(const PoolKey& key, std::uint64_t now_ns) {
    if (std::optional<Chunk> chunk = caches_.take(key)) [[likely]]
      return chunk;
    interval_.trim(*this, now_ns);
    if (std::optional<Chunk> chunk = shared_.take(key, now_ns)) return chunk;
    return caches_.steal(key);
  }

  std::optional<Chunk> take_near(const PoolKey& key, std::uint64_t bytes_max) {
    return shared_.take_near(key, bytes_max);
  }

  void give(const PoolKey& key, Chunk chunk, std::uint64_t now_ns) {
    if (key.bytes > kThreadChunkBytesMax || !caches_.give(key, chunk, now_ns, thread_bytes_max_))
      shared_.give(key, chunk, Fence{}, false, now_ns);
    interval_.trim(*this, now_ns);
  }

  // The calling thread's cache alone, which holds at most `bytes_max` together with those of other threads.
  std::optional<Chunk> take_of_thread(const PoolKey& key) { return caches_.take(key); }
  bool give_to_thread(const PoolKey& key, Chunk chunk, std::uint64_t now_ns, std::uint64_t bytes_max) {
    return key.bytes <= kThreadChunkBytesMax &&
           caches_.give(key, chunk, now_ns, std::min(bytes_max, thread_bytes_max_));
  }

  void give_waiting(const PoolKey& key, Chunk chunk, Fence&& fence, std::uint64_t now_ns) {
    shared_.give(key, chunk, std::move(fence), true, now_ns);
  }

  // Releases chunks until `keep_bytes` are left, but none used within `unused_for_ns`; oldest first in the shared tier.
  std::uint64_t trim(const Trim& what, std::uint64_t now_ns) {
    return trim(what, now_ns, [this](Chunk chunk, bool unsettled) { shared_.release(chunk, unsettled); });
  }
  // release(chunk, unsettled) gives one back to the source.
  template <class Release>
  std::uint64_t trim(const Trim& what, std::uint64_t now_ns, Release release) {
    std::uint64_t released = 0, left = usage_bytes();
    if (left > what.keep_bytes) {
      releasing_.fetch_add(1);
      caches_.drain(
          [&](const PoolKey& key, std::uint64_t given_ns, const Chunk&) {
            if (left <= what.keep_bytes || elapsed_ns(given_ns, now_ns) < what.unused_for_ns) return false;
            left -= left < key.bytes ? left : key.bytes;
            return true;
          },
          [&](const PoolKey& key, Chunk chunk, std::uint64_t) {
            released += key.bytes;
            release(chunk, false);
          });
      releasing_.fetch_sub(1);
    }
    const std::uint64_t kept_by_threads = caches_.bytes();
    const std::uint64_t keep_shared = what.keep_bytes > kept_by_threads ? what.keep_bytes - kept_by_threads : 0;
    const Trim of_shared{keep_shared, what.unused_for_ns, what.settled_only};
    return released + shared_.trim(of_shared, now_ns, release);
  }

  // Releases settled chunks of the key's group and traits: see RecyclePool. release(chunk) gives one back to the
  // source, or to the pool under another key.
  template <class Release>
  PoolUsage give_up(const PoolKey& key, std::uint64_t bytes, Release release) {
    const auto like = [&](const PoolKey& of) { return of.group == key.group && of.traits == key.traits; };
    return give_up_of_threads(like, bytes, release, shared_.give_up(key, bytes, release));
  }
  PoolUsage give_up(const PoolKey& key, std::uint64_t bytes) {
    return give_up(key, bytes, [this](Chunk chunk) { shared_.release(chunk, false); });
  }
  // The same for all chunks with goes(key), which looks at group and traits.
  template <class Goes>
  PoolUsage give_up_those(Goes goes, std::uint64_t bytes) {
    const auto release = [this](Chunk chunk) { shared_.release(chunk, false); };
    return give_up_of_threads(goes, bytes, release, shared_.give_up_those(goes, bytes, release));
  }

  // Takes out every chunk of a group: visit(key, chunk, waits). On return none is in the hands of a trim either.
  template <class Visit>
  void take_out(std::uintptr_t group, Visit visit) {
    caches_.drain([&](const PoolKey& key, std::uint64_t, const Chunk&) { return key.group == group; },
                  [&](const PoolKey& key, Chunk chunk, std::uint64_t) { visit(key, chunk, false); });
    while (releasing_.load()) sched_yield();
    shared_.take_out(group, visit);
  }

  // Takes the chunks with goes(chunk) out of the caches of all threads, and calls visit(chunk) for each.
  template <class Goes, class Visit>
  void take_from_threads(Goes goes, Visit visit) {
    if (!caches_.bytes()) return;
    releasing_.fetch_add(1);
    caches_.drain([&](const PoolKey&, std::uint64_t, const Chunk& chunk) { return goes(chunk); },
                  [&](const PoolKey&, Chunk chunk, std::uint64_t) { visit(chunk); });
    releasing_.fetch_sub(1);
  }

  // Waits for chunks that other threads are giving back to the source at this moment. False: there are none.
  bool wait_for_releases() {
    const bool any = releasing_.load() != 0;
    while (releasing_.load()) sched_yield();
    return shared_.wait_for_releases() || any;
  }

  PoolUsage usage() {
    PoolUsage usage = shared_.usage();
    caches_.for_each([&](const PoolKey& key) {
      ++usage.blocks;
      usage.bytes += key.bytes;
      if (key.bytes > usage.largest_bytes) usage.largest_bytes = key.bytes;
    });
    return usage;
  }
  void settle(std::uintptr_t group) { shared_.settle(group); }
  template <class Visit>
  void for_each_waiting(Visit visit) const {
    shared_.for_each_waiting(visit);
  }
  // Calls visit(key) for every chunk that is kept.
  template <class Visit>
  void for_each(Visit visit) {
    caches_.for_each(visit);
    shared_.for_each(visit);
  }

  void before_fork() { shared_.before_fork(); }
  void after_fork_in_parent() { shared_.after_fork_in_parent(); }
  void after_fork_in_child() {
    releasing_ = 0;
    caches_.after_fork_in_child();
    shared_.after_fork_in_child();
  }

 private:
  static constexpr std::uint64_t kThreadChunkBytesMax = std::uint64_t{1} << 20;

  std::uint64_t usage_bytes() const { return caches_.bytes() + shared_.usage_bytes(); }

  // What is missing after `gone`, from the thread caches.
  template <class Goes, class Release>
  PoolUsage give_up_of_threads(Goes goes, std::uint64_t bytes, Release release, PoolUsage gone) {
    if (gone.bytes >= bytes || !caches_.bytes()) return gone;
    releasing_.fetch_add(1);
    caches_.drain(
        [&](const PoolKey& of, std::uint64_t, const Chunk&) {
          if (gone.bytes >= bytes || !goes(of)) return false;
          ++gone.blocks;
          gone.bytes += of.bytes;
          return true;
        },
        [&](const PoolKey&, Chunk chunk, std::uint64_t) { release(chunk); });
    releasing_.fetch_sub(1);
    return gone;
  }

  RecyclePool<S> shared_;
  ThreadCaches<PoolKey, PoolKeyHash, Chunk> caches_;
  IntervalTrim interval_;
  std::uint64_t thread_bytes_max_ = 0;
  std::atomic<int> releasing_{0};  // trims that may hold chunks out of thread caches
};

}  // namespace cistern
