// The first tier of a pool: a few chunks per thread, taken and given back without meeting another thread.
//
//   take(key) -> a chunk from a way of the key's set that has this key (the cache's own lock, which is uncontended)
//   give(key, chunk) -> into an empty way of the set; if none is empty, the caller gives it to the shared tier
//   drain(wanted, visit) -> any thread takes the chunks that it wants out of every cache
//
// A cache belongs to one thread, but each has a lock, so that another thread can drain it at any time. When the
// thread ends its cache stays, with what it holds, until a new thread adopts it.
//
// All caches share one limit, of which each gets a part. A cache that has used up its part asks for more. If nothing is
// left, the unused parts of the other caches are taken back first.
//
// There may be any number of objects. For the first few of each type a thread finds its cache in thread-local memory;
// for the others it looks through all caches of the object.
#pragma once
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <new>
#include <optional>

#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"

namespace cistern {

template <class Key, class KeyHash, class Chunk>
class ThreadCaches {
 public:
  ThreadCaches() = default;
  ThreadCaches(const ThreadCaches&) = delete;
  ThreadCaches& operator=(const ThreadCaches&) = delete;
  // Drained, and used by no thread any more. A thread may be ending at this moment with a cache of ours: the caches'
  // memory is not given back, but kept for the next object.
  ~ThreadCaches() {
    if (key_.load() == EndKey::made) pthread_key_delete(thread_end_);
    Locked hold(spare_lock_);
    for (Cache *cache = all_.load(), *next; cache; cache = next) {
      next = cache->next;
      cache->next = spare_;
      spare_ = cache;
    }
  }

  std::optional<Chunk> take(const Key& key) {
    Cache* cache = mine();
    if (!cache) [[unlikely]]
      cache = adopt();
    return cache ? take_from(*cache, key) : std::nullopt;
  }

  // Takes from any thread's cache. A source costs far more, so it is asked only after this.
  std::optional<Chunk> steal(const Key& key) {
    if (!bytes()) return std::nullopt;
    for (Cache* cache = all_.load(std::memory_order_acquire); cache; cache = cache->next)
      if (std::optional<Chunk> chunk = take_from(*cache, key)) return chunk;
    return std::nullopt;
  }

  // False: no place, or `bytes_max` of all caches together would be passed; the chunk stays with the caller.
  bool give(const Key& key, Chunk chunk, std::uint64_t now_ns, std::uint64_t bytes_max) {
    Cache* cache = mine();
    if (!cache) [[unlikely]] {
      cache = adopt();
      if (!cache) return false;
    }
    Gave gave = give_to(*cache, key, chunk, now_ns, bytes_max);
    if (gave == Gave::not_allowed && bytes() + key.bytes <= bytes_max) [[unlikely]] {
      take_back_unused();
      gave = give_to(*cache, key, chunk, now_ns, bytes_max);
    }
    return gave == Gave::yes;
  }

  // Takes out every chunk with wanted(key, given_ns, chunk) and calls visit(key, chunk, given_ns) after its cache is
  // free.
  template <class Wanted, class Visit>
  void drain(Wanted wanted, Visit visit) {
    for (Cache* cache = all_.load(std::memory_order_acquire); cache; cache = cache->next) {
      Way taken[kSets * kWays];
      int count = 0;
      {
        Locked hold(cache->lock);
        for (Way& way : cache->ways) {
          if (!way.full || !wanted(way.key, way.given_ns, way.chunk)) continue;
          way.full = false;
          taken[count++] = way;
          cache->count_bytes(-way.key.bytes);
        }
      }
      for (int i = 0; i < count; ++i) visit(taken[i].key, taken[i].chunk, taken[i].given_ns);
    }
  }

  template <class Visit>
  void for_each(Visit visit) {
    for (Cache* cache = all_.load(std::memory_order_acquire); cache; cache = cache->next) {
      Locked hold(cache->lock);
      for (const Way& way : cache->ways)
        if (way.full) visit(way.key);
    }
  }

  std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const Cache* cache = all_.load(std::memory_order_acquire); cache; cache = cache->next)
      sum += cache->bytes.load(std::memory_order_relaxed);
    return sum;
  }

  // Other threads are gone, perhaps in the middle of a take: whatever their caches hold is forgotten.
  void after_fork_in_child() {
    new (&register_lock_) Lock;
    new (&spare_lock_) Lock;
    const Cache* const own = mine();
    for (Cache* cache = all_.load(std::memory_order_relaxed); cache; cache = cache->next) {
      for (Way& way : cache->ways) way.full = false;
      new (&cache->lock) SpinLock;
      cache->bytes = cache->allowed = 0;
      cache->owner.store(cache == own ? this_thread() : kNobody, std::memory_order_relaxed);
    }
    allowed_ = 0;
    if (key_.load() == EndKey::being_made) key_ = EndKey::none;
  }

 private:
  static constexpr int kSets = 16, kWays = 4;
  static constexpr unsigned kQuick = 8;
  static constexpr std::uintptr_t kNobody = 0;

  static std::uintptr_t this_thread() { return reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer()); }

  struct Way {
    Key key{};
    Chunk chunk{};
    std::uint64_t given_ns = 0;
    bool full = false;
  };
  struct Cache {
    SpinLock lock;  // whoever finds it taken waits for a few instructions of its owner, or for a drain
    std::atomic<std::uintptr_t> owner{this_thread()};
    unsigned number = 0;  // of the object
    Cache* next = nullptr;
    std::atomic<std::uint64_t> bytes{0};  // in its ways; written under the lock, by `change`, which wraps for less
    std::uint64_t allowed = 0;            // under the lock
    Way ways[kSets * kWays];

    void count_bytes(std::uint64_t change) {
      bytes.store(bytes.load(std::memory_order_relaxed) + change, std::memory_order_relaxed);
    }
  };

  enum class EndKey : unsigned char { none, being_made, made };
  enum class Gave { yes, no_place, not_allowed };
  Gave give_to(Cache& cache, const Key& key, Chunk chunk, std::uint64_t now_ns, std::uint64_t bytes_max) {
    Locked hold(cache.lock);
    Way* set = set_of(cache, key);
    for (int i = 0; i < kWays; ++i) {
      if (set[i].full) continue;
      const std::uint64_t bytes = cache.bytes.load(std::memory_order_relaxed) + key.bytes;
      if ((bytes > cache.allowed || cache.allowed > bytes_max) && !allow(cache, bytes, bytes_max)) [[unlikely]]
        return Gave::not_allowed;
      set[i] = {key, chunk, now_ns, true};
      cache.bytes.store(bytes, std::memory_order_relaxed);
      return Gave::yes;
    }
    return Gave::no_place;
  }

  // Under the cache's lock.
  bool allow(Cache& cache, std::uint64_t bytes, std::uint64_t bytes_max) {
    if (bytes <= cache.allowed) return false;
    const std::uint64_t more = bytes - cache.allowed;
    std::uint64_t all = allowed_.load(std::memory_order_relaxed);
    do {
      if (all + more > bytes_max) return false;
    } while (!allowed_.compare_exchange_weak(all, all + more, std::memory_order_relaxed));
    cache.allowed = bytes;
    return true;
  }

  [[gnu::noinline]] void take_back_unused() {
    for (Cache* cache = all_.load(std::memory_order_acquire); cache; cache = cache->next) {
      Locked hold(cache->lock);
      const std::uint64_t unused = cache->allowed - cache->bytes.load(std::memory_order_relaxed);
      cache->allowed -= unused;
      allowed_.fetch_sub(unused, std::memory_order_relaxed);
    }
  }

  std::optional<Chunk> take_from(Cache& cache, const Key& key) {
    Locked hold(cache.lock);
    Way* set = set_of(cache, key);
    for (int i = 0; i < kWays; ++i) {
      if (!set[i].full || !(set[i].key == key)) continue;
      set[i].full = false;
      cache.count_bytes(-key.bytes);
      return set[i].chunk;
    }
    return std::nullopt;
  }

  static Way* set_of(Cache& cache, const Key& key) { return &cache.ways[(KeyHash{}(key) % kSets) * kWays]; }

  // Null: the thread has none.
  Cache* mine() const {
    if (number_ < kQuick) [[likely]]
      return quick_[number_];
    Cache* cache = all_.load(std::memory_order_acquire);
    while (cache && cache->owner.load(std::memory_order_relaxed) != this_thread()) cache = cache->next;
    return cache;
  }

  static void thread_ends(void* memory) {
    auto* const cache = static_cast<Cache*>(memory);
    if (cache->number < kQuick) quick_[cache->number] = nullptr;
    cache->owner.store(kNobody, std::memory_order_release);
  }

  static bool becomes_ours(Cache& cache) {
    std::uintptr_t nobody = kNobody;
    return cache.owner.compare_exchange_strong(nobody, this_thread(), std::memory_order_acquire);
  }

  // The C library is called without a lock.
  [[gnu::noinline]] Cache* adopt() {
    if (!make_key()) return nullptr;
    Cache* const cache = own_cache();
    assert_no_lock_held();
    if (pthread_setspecific(thread_end_, cache) != 0) {
      cache->owner.store(kNobody, std::memory_order_release);
      return nullptr;
    }
    if (number_ < kQuick) quick_[number_] = cache;
    return cache;
  }

  // False: it could not be made, or is being made at this moment: then this thread has no cache yet.
  bool make_key() {
    EndKey key = key_.load(std::memory_order_acquire);
    if (key == EndKey::made) return true;
    if (key != EndKey::none || !key_.compare_exchange_strong(key, EndKey::being_made)) return key == EndKey::made;
    assert_no_lock_held();
    const bool made = pthread_key_create(&thread_end_, thread_ends) == 0;
    key_.store(made ? EndKey::made : EndKey::none, std::memory_order_release);
    return made;
  }

  // A signal handler may come for one while this thread is about to note its own: it gets the same.
  Cache* own_cache() {
    Locked hold(register_lock_);
    Cache* cache = all_.load(std::memory_order_relaxed);
    while (cache && cache->owner.load(std::memory_order_relaxed) != this_thread()) cache = cache->next;
    if (cache) return cache;
    cache = all_.load(std::memory_order_relaxed);
    while (cache && !becomes_ours(*cache)) cache = cache->next;
    if (cache) return cache;
    cache = new_cache();
    cache->number = number_;
    cache->next = all_.load(std::memory_order_relaxed);
    all_.store(cache, std::memory_order_release);
    return cache;
  }

  static Cache* new_cache() {
    Locked hold(spare_lock_);
    void* memory = spare_;
    if (memory)
      spare_ = spare_->next;
    else
      memory = internal_allocate(sizeof(Cache));
    return new (memory) Cache;
  }

  static inline constinit thread_local Cache* quick_[kQuick] = {};
  static inline constinit std::atomic<unsigned> objects_{0};
  static inline constinit Lock spare_lock_;
  static inline constinit Cache* spare_ = nullptr;

  const unsigned number_ = objects_.fetch_add(1);  // never given again
  std::atomic<Cache*> all_{nullptr};
  std::atomic<std::uint64_t> allowed_{0};  // of all caches together
  Lock register_lock_;
  pthread_key_t thread_end_{};
  std::atomic<EndKey> key_{EndKey::none};
};

}  // namespace cistern
