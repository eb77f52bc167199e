// Turns on streams. To other threads a copy in pieces is one command, as it is when the driver makes it.
//
//   a turn       A call has one while it enqueues on a stream. It first waits for a long turn that it would disturb.
//   a long turn  A copy in pieces has one from its first piece to its last. It gets one only if no other thread used
//                the stream, or one ordered with it, for a while, and no thread waits or enqueues there now.
//
// So a thread that enqueues often never waits, and other threads wait for one copy at most. In a process of several
// threads the caller makes sure that no work is ahead of the pieces on their stream, unless it is `alone`. Such work
// might wait for the very thread that waits here. If a copy makes no progress for long, all waiting ends, and no copy
// is cut into pieces any more. Commands of those who waited then come between the pieces. The time is long because a
// busy machine or a driver may hold the copying thread up.
#pragma once
#include <array>
#include <atomic>

#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"

namespace cistern::staging {

// A stream as other threads see it. `joins_all`: ordered with all streams of its context that block, as CUDA's legacy
// default stream is.
struct StreamKey {
  const void* context = nullptr;
  const void* stream = nullptr;
  bool joins_all = false, blocks = true;

  bool ordered_with(const StreamKey& other) const {
    if (context != other.context) return false;
    return stream == other.stream || (joins_all && other.blocks) || (other.joins_all && blocks);
  }
};

class Turns {
 public:
  // `patience_ns`: how long a thread waits at most for a copy that makes no progress.
  explicit Turns(std::uint64_t patience_ns = kPatienceNs) : patience_ns_(patience_ns) {}
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  // No other thread ever had a turn.
  bool alone() const { return !shared_.load(std::memory_order_relaxed); }

  void before_fork() { lock_.lock_for_fork(); }
  void after_fork() { lock_.unlock_after_fork(); }
  void forget_in_child();

  static constexpr std::uint64_t kPatienceNs = 3'000'000'000, kDrainNs = 100'000, kUnusedNs = 10'000'000;

 private:
  friend class Turn;
  static constexpr std::size_t kSlots = 128;

  // The account of the streams whose handles hash to this slot.
  struct Slot {
    std::atomic<int> calls{0}, waiting{0};
    // The thread that used it last, its context and time, and the time when another thread did. These are hints: two
    // writers may mix them.
    std::atomic<const void*> context{nullptr}, thread{nullptr};
    std::atomic<std::uint64_t> used_ns{0}, used_by_other_ns{0};

    void note_use(const void* of_context);
    std::uint64_t used_by_others_ns() const;
  };
  struct LongTurn {
    StreamKey key;
    std::uint64_t number;
    const std::atomic<std::uint64_t>* progress_ns;  // the time of the last one; in the Turn
    bool given_up;                                  // by those who waited for it
  };

  // A stream that joins all has its context's.
  Slot& slot_of(const void* context, const void* stream) {
    const auto bits = reinterpret_cast<std::uintptr_t>(stream ? stream : context) * 0x9E3779B97F4A7C15u;
    return slots_[(bits >> 32) % kSlots];
  }
  void note_thread();
  LongTurn* in_the_way_of(const StreamKey& key);
  void wait(Slot& slot, const StreamKey& key);
  bool in_use(const StreamKey& key);
  std::uint64_t begin_long(const StreamKey& key, std::atomic<std::uint64_t>& progress_ns);  // 0: it is not to be had
  void end_long(std::uint64_t number);
  bool drained(const StreamKey& key);
  // For each slot whose calls may come between the pieces, while `look` returns true.
  template <class Look>
  bool each_slot(const StreamKey& key, Look look);

  const std::uint64_t patience_ns_;
  std::array<Slot, kSlots> slots_{};
  std::atomic<int> long_turns_{0};
  std::atomic<unsigned> ended_{0};  // long turns that have ended: waiters sleep on it
  std::atomic<const void*> first_thread_{nullptr};
  std::atomic<bool> shared_{false}, troubled_{false};
  Lock lock_;
  Vector<LongTurn> under_way_;
  std::uint64_t last_number_ = 0;
};

// A turn of the calling thread, as long as the object lives.
class Turn {
 public:
  // `context` and `stream` as in the stream's key; a stream that joins all is null. `key_of()` gives the whole key. It
  // is called only if there is a long turn.
  template <class KeyOf>
  Turn(Turns& turns, const void* context, const void* stream, KeyOf key_of)
      : turns_(turns), slot_(turns.slot_of(context, stream)) {
    turns.note_thread();
    take(key_of);
    slot_.note_use(context);
  }
  ~Turn() {
    if (number_)
      turns_.end_long(number_);
    else
      slot_.calls.fetch_sub(1);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool is_long() const { return number_ != 0; }
  // Makes it a long turn. False: other threads use the stream, and it stays a short one.
  bool lengthen(const StreamKey& key);
  // Makes it a short turn again.
  void shorten(const StreamKey& key);
  // A piece of the copy was made.
  void progressed();

 private:
  // The call is counted before it looks for long turns, because a long turn begins and then looks for counted calls.
  template <class KeyOf>
  void take(KeyOf key_of) {
    slot_.calls.fetch_add(1);
    if (turns_.long_turns_.load()) [[unlikely]]
      turns_.wait(slot_, key_of());
  }

  Turns& turns_;
  Turns::Slot& slot_;
  std::uint64_t number_ = 0;
  std::atomic<std::uint64_t> progress_ns_{0};
};

}  // namespace cistern::staging
