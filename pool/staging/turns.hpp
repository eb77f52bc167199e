// Turns on streams: a copy in pieces is one command to everybody else, as it is when the driver makes it.
//
//   a turn       a call that enqueues on a stream has one while it does; it waits for a long one that it would disturb
//   a long turn  a copy in pieces has one from its first piece to its last, and gets it only where no other call that
//                would come between is under way
//
// Nobody waits for ever: what a copy in pieces waits for may be the very thread that waits here. A long turn that kept
// somebody for a second is no hindrance to anybody any more.
#pragma once
#include <array>
#include <atomic>

#include "pool/base/internal_memory.hpp"
#include "pool/base/lock.hpp"

namespace cistern::staging {

// A stream as the others see it. `joins_all`: ordered with all streams of its context that block, as CUDA's legacy
// default stream is.
struct Place {
  const void* context = nullptr;
  const void* stream = nullptr;
  bool joins_all = false, blocks = true;

  bool ordered_with(const Place& other) const {
    if (context != other.context) return false;
    return stream == other.stream || (joins_all && other.blocks) || (other.joins_all && blocks);
  }
};

class Turns {
 public:
  Turns() = default;
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  void before_fork() { lock_.lock_for_fork(); }
  void after_fork() { lock_.unlock_after_fork(); }
  void forget_in_child();

  static constexpr std::uint64_t kPatienceNs = 1'000'000'000, kDrainNs = 100'000;

 private:
  friend class Turn;
  static constexpr std::size_t kSlots = 128;
  using Calls = std::atomic<int>;

  struct LongTurn {
    Place place;
    std::uint64_t number;
    bool given_up;  // by those who waited for it
  };

  // Streams that join all have the first one.
  Calls& calls_on(const void* stream) {
    const auto bits = reinterpret_cast<std::uintptr_t>(stream) * 0x9E3779B97F4A7C15u;
    return stream ? calls_[1 + (bits >> 32) % (kSlots - 1)] : calls_[0];
  }
  LongTurn* in_the_way_of(const Place& place);
  void wait(Calls& calls, const Place& place);
  std::uint64_t begin_long(const Place& place);  // 0: it is not to be had
  void end_long(std::uint64_t number);
  bool drained(const Place& place);

  std::array<Calls, kSlots> calls_{};  // under way
  std::atomic<int> long_turns_{0};
  Lock lock_;
  Vector<LongTurn> under_way_;
  std::uint64_t last_number_ = 0;
};

// The calling thread's, as long as it lives.
class Turn {
 public:
  // `stream`: as in its place; null for one that joins all. `place` tells the place, where that matters.
  template <class PlaceOf>
  Turn(Turns& turns, const void* stream, PlaceOf place) : turns_(turns), calls_(turns.calls_on(stream)) {
    calls_.fetch_add(1);
    if (turns.long_turns_.load()) [[unlikely]]
      turns.wait(calls_, place());
  }
  ~Turn() {
    if (number_)
      turns_.end_long(number_);
    else
      calls_.fetch_sub(1);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // From now on it is a long one. False: others are enqueueing, and it is a short one still.
  bool lengthen(const Place& place);

 private:
  Turns& turns_;
  Turns::Calls& calls_;
  std::uint64_t number_ = 0;
};

}  // namespace cistern::staging
