// How much memory the process can still take, before the system refuses it or ends the process: by its own limits of
// address space and data, by its control groups, and of the machine.
#pragma once
#include <atomic>
#include <cstdint>

namespace cistern {

// The memory that the control groups (by both versions of their files) and the machine have left.
std::uint64_t available_bytes();
// The groups' part, where the system's files lie under `root`.
std::uint64_t left_in_groups(const char* root);

// The headroom for an asker that takes memory from time to time. It is looked up again where the last answer may be out
// of date. One call can take all address space, so a limit of it is read each time. Writing to memory takes time, so
// the less is left, the sooner it is read again. Under a filter of system calls nothing is read: the last answer holds,
// less the memory that the asker took since; without one, the answer is kUnknown.
class Headroom {
 public:
  // A little, whatever the asker has: keeping no more than that does not end a process that could start a driver.
  static constexpr std::uint64_t kUnknown = std::uint64_t{128} << 20;

  struct Question {
    std::uint64_t taken_bytes = 0;  // the memory that the asker has taken by now
    std::uint64_t now_ns = 0;       // by the coarse clock
    bool at_once = true;            // else a look at this moment of the clock will do for address space too
  };
  std::uint64_t bytes(const Question& asked);
  // The process's own limits are others now: so they are in every state.
  static void note_limits_changed() { limits_set_.fetch_add(1, std::memory_order_relaxed); }
  // Memory was given back: the next question is a look.
  void forget() {
    look_again_ns_.store(0, std::memory_order_relaxed);
    limits_looked_ns_.store(0, std::memory_order_relaxed);
  }

 private:
  static inline constinit std::atomic<unsigned> limits_set_{0};

  // `known` less what was taken since.
  static std::uint64_t rest(std::uint64_t known, std::uint64_t taken_then, std::uint64_t taken_now);

  std::atomic<bool> looked_{false};  // ever
  std::atomic<std::uint64_t> look_again_ns_{0}, limits_looked_ns_{0};
  std::atomic<unsigned> limits_seen_{0};
  std::atomic<std::uint64_t> available_{0}, taken_at_look_{0};      // by groups and machine; 0 until the first look
  std::atomic<std::uint64_t> addressable_{0}, taken_at_limits_{0};  // by the process's own limits
};

}  // namespace cistern
