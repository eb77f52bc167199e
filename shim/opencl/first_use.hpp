// Drivers that give an object its memory at its first command, of the host's (PoCL), and end the process there when
// there is none: no call fails that what is kept could make way for. So it makes way before, where an object is made or
// a buffer is kept, while what the process can still take would not do for all first commands to come.
#pragma once
#include <atomic>
#include <memory>

#include "backends/opencl/queue_clock.hpp"

namespace cistern::opencl {

struct OpenclState;

// open: it takes its memory at its first command. expected: the same, of an object that the program has.
enum class FirstUse : std::uint8_t { none, open, expected };

// What first commands will take, and what those take that have not ended: memory that is written to is there later.
class FirstUses {
 public:
  void expect(std::uint64_t bytes) { bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  // The program gave the object up before.
  void expect_no_more(std::uint64_t bytes) { bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
  // The first command is in the queue; without a clock nobody will know when it ends.
  void begun(const std::shared_ptr<QueueClock>& clock, std::uint64_t number, std::uint64_t bytes);
  // Finds out which have ended, without waiting for any.
  void look_for_ends();
  std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

  void before_fork() { lock_.lock_for_fork(); }
  void after_fork() { lock_.unlock_after_fork(); }
  void forget_in_child();

 private:
  struct Begun {
    std::shared_ptr<QueueClock> clock;
    std::uint64_t number, bytes;
  };

  // `ask(begun)`: what is known of its end. Not under the lock: it may ask the driver, and a clock may end with it.
  template <class Ask>
  void take_ended(Ask ask);

  std::atomic<std::uint64_t> bytes_{0};
  Lock lock_;
  Vector<Begun> begun_;
  std::size_t begun_max_ = 64;
};

// Of an object that the driver makes with these flags; `bytes` of its own.
FirstUse first_use_of(OpenclState& s, cl_context context, cl_bitfield flags, std::uint64_t bytes);
// After an object of the context was made, or a buffer of it kept.
void keep_headroom(OpenclState& s, cl_context context);

}  // namespace cistern::opencl
