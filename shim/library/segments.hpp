// A pool's own segments (CISTERN_SEGMENTS in cistern/pool.h): large allocations of its kind, which it cuts into blocks
// and joins again. The kind's table has the memory, the blocks' records and the work (KindSegments); which bytes are
// free is here, in one pool for each place (pool/ranges/segment_pool.hpp).
//
//   take -> the place of the request -> the pool there, or a new one -> a block -> the kind begins it
//   give -> the kind ends the block -> its bytes are free, perhaps behind a fence
//   trim_all_segments -> segments without blocks go back, of all pools
//
// A context that ends takes its segments with it. The pool there is then forgotten when no thread is in it.
#pragma once
#include <atomic>

#include "pool/ranges/segment_pool.hpp"
#include "shim/library/kind_memory.hpp"

namespace cistern::library {

// Segments of one place, as the pool there asks for them.
class SegmentsOfKind {
 public:
  struct Error {
    cistern_status status = CISTERN_OK;
    int code = 0;
  };
  using Fence = WorkFence;

  SegmentsOfKind(const KindMemory& memory, const Place& place, std::atomic<std::uint64_t>& made)
      : memory_(memory), place_(place), made_(made) {}

  Acquired<std::uint64_t, Error> acquire(std::uint64_t bytes, Shortage shortage);
  void release(std::uint64_t first) { memory_.segments->release(place_, first); }
  // After its context has ended the driver is not asked: the pool may be forgotten under a lock.
  Settled settled(Fence& fence) {
    return memory_.segments->is_there(place_) ? memory_.segments->settled(place_, fence) : Settled::yes;
  }
  static bool out_of_memory(const Error& error) { return error.status == CISTERN_NO_MEMORY; }

  const KindMemory& memory() const { return memory_; }
  const Place& place() const { return place_; }

 private:
  const KindMemory& memory_;
  const Place place_;
  std::atomic<std::uint64_t>& made_;
};

struct SegmentsAt;

class PoolSegments {
 public:
  // A block for a request that is right. `taken->segments` says where it lies.
  cistern_status take(const BlockRequest& request, Taken* taken);
  // As KindMemory::give, for a block that take() gave.
  cistern_status give(const Taken& taken, void* queue, InOrder order);
  // Has free bytes for so many blocks more.
  cistern_status reserve(const BlockRequest& request, std::size_t count);

  struct Figures {
    std::uint64_t segments = 0, bytes = 0, made = 0;
  };
  Figures figures();

  struct Segment {
    std::uintptr_t address;
    std::uint64_t bytes;
    int device;  // its ordinal, or CISTERN_CURRENT
  };
  Vector<Segment> list();

  // The segments of a pool that ends, which has no block. They are moved out under the pool's lock, and given back
  // under none.
  class Ended {
   public:
    Ended() = default;
    Ended(const Ended&) = delete;
    ~Ended();

   private:
    friend class PoolSegments;
    SegmentsAt* first_ = nullptr;
  };
  void end(Ended* ended);

  // The pools of all places, which stay while they are in use.
  void use_all(Vector<SegmentsAt*>& used);

  void before_fork();
  void after_fork();
  // The other threads are not there.
  void after_fork_in_child();

 private:
  SegmentsAt* use(const KindMemory& memory, const Place& place);
  SegmentsAt* use(SegmentsAt* at);
  SegmentsAt* unused_dead();

  Lock lock_;  // of the list
  SegmentsAt* first_ = nullptr;
  std::atomic<std::uint64_t> made_{0};  // in places that are forgotten, too
};

// Unsettled: work may still use them, and their release waits for it.
enum class Segments { all_without_blocks, unsettled_too, not_needed_since_the_call_before };
// Returns the bytes that went back, of pools of this kind; null: of all kinds.
std::uint64_t trim_all_segments(const KindMemory* memory, Segments which);

}  // namespace cistern::library
