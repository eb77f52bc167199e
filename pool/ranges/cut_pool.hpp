// The common part of RangePool and SegmentPool, which cut blocks and join what is freed. It takes blocks out of memory
// that is there, and keeps what waits for fences. It knows the most that was used: that bounds the memory of a pool.
//
// A call that is short of memory waits for what other threads are finding out about fences (settle), and for what they
// are giving back (wait_for_returns): otherwise it would fail though nothing is live.
#pragma once
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "pool/base/lock.hpp"
#include "pool/ranges/blocks.hpp"

namespace cistern::ranges {

// S: the source, with Error, Fence and settled(fence), which is never called under the lock.
template <class S>
class CutPool {
 public:
  using Error = typename S::Error;
  using Fence = typename S::Fence;

  struct Answer {
    std::uint64_t first;
    Error error;
    bool ok, hit;
  };

  CutPool(const CutPool&) = delete;
  CutPool& operator=(const CutPool&) = delete;

  // `waits`: the fence has to settle before other work than this order's may use the memory. Fences of one order settle
  // in that order; kNoOrder: of work in several. False: no live block begins there.
  bool deallocate(std::uint64_t first, Order order, Fence&& fence, bool waits) {
    Locked hold(lock_);
    Extent* const extent = blocks_.forget_live(first);
    if (!extent) return false;
    blocks_.free(extent, order, std::move(fence), waits);
    return true;
  }

  // Extents whose fences have settled by now become free for all work. False: there were none.
  bool settle(Asked asked = Asked::skip) { return blocks_.settle(source_, asked); }

  // Waits for threads that are giving memory back to the source at this moment. False: there are none.
  bool wait_for_returns() {
    bool any = false;
    for (const std::uint64_t begun = returns_begun(); is_returning(begun); any = true) sched_yield();
    return any;
  }

  // The most that was needed since the last call.
  std::uint64_t take_recent_peak() {
    Locked hold(lock_);
    return std::exchange(recent_peak_, blocks_.needed_bytes());
  }

  // Freed, and not settled.
  std::uint64_t waiting_bytes() {
    Locked hold(lock_);
    return blocks_.used_bytes() - blocks_.figures().live_bytes;
  }

  void before_fork() { lock_.lock_for_fork(); }
  void after_fork() { lock_.unlock_after_fork(); }

 protected:
  // A thread takes memory out of the pool and gives it to the source. It calls for no memory meanwhile.
  class Returning {
   public:
    explicit Returning(CutPool& pool) : pool_(pool) {
      Locked hold(pool.lock_);
      number_ = ++pool.returns_;
      pool.returning_.push_back(number_);
    }
    ~Returning() {
      Locked hold(pool_.lock_);
      std::erase(pool_.returning_, number_);
    }
    Returning(const Returning&) = delete;
    Returning& operator=(const Returning&) = delete;

   private:
    CutPool& pool_;
    std::uint64_t number_;
  };

  CutPool(S& source, bool reuse_in_order) : source_(source), blocks_(lock_, reuse_in_order) {}
  ~CutPool() = default;

  // A block out of memory that is there, among others of its size. One that was cut out of a larger extent keeps it
  // apart: so memory that has settled is joined before.
  Answer take(std::uint64_t bytes, Order order) {
    if (const Answer answer = take_now(bytes, order, true); answer.ok) return answer;
    blocks_.settle_next(source_);
    if (const Answer answer = take_now(bytes, order, false); answer.ok) return answer;
    return settle() ? take_now(bytes, order, false) : Answer{};
  }
  // Among blocks of any size. Under the lock.
  Answer take_anywhere(std::uint64_t bytes, Order order) {
    Extent* const extent = blocks_.best_fit_anywhere(bytes, order);
    if (!extent) return {};
    const Answer answer{blocks_.take_from(extent, bytes)->first, {}, true, true};
    note_used(blocks_.needed_bytes());
    return answer;
  }
  // Under the lock, when a block has its memory: a request that fails is no need.
  void note_used(std::uint64_t bytes) {
    recent_peak_ = std::max(recent_peak_, bytes);
    used_peak_ = std::max(used_peak_, bytes);
  }

  S& source_;
  Lock lock_;
  Blocks<Fence> blocks_;
  std::uint64_t used_peak_ = 0, recent_peak_ = 0;  // recent: since it was taken last

 private:
  std::uint64_t returns_begun() {
    Locked hold(lock_);
    return returns_;
  }
  // One of the first so many is not done.
  bool is_returning(std::uint64_t begun) {
    Locked hold(lock_);
    return std::any_of(returning_.begin(), returning_.end(), [&](std::uint64_t number) { return number <= begun; });
  }
  // `exact`: while fences wait, only an extent that fits exactly.
  Answer take_now(std::uint64_t bytes, Order order, bool exact) {
    Locked hold(lock_);
    const Extent* const extent = blocks_.take(bytes, order, exact);
    if (!extent) return {};
    note_used(blocks_.needed_bytes());
    return {extent->first, {}, true, true};
  }

  std::uint64_t returns_ = 0;
  Vector<std::uint64_t> returning_;  // the numbers of those that are not done
};

}  // namespace cistern::ranges
