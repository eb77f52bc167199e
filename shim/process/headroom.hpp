// How much memory the process can still take, before the system refuses it or ends the process: by its own limits of
// address space and data, by its control groups, and of the machine.
#pragma once
#include <atomic>
#include <cstdint>

namespace cistern {

// What the control groups, by both versions of their files, and the machine have left.
std::uint64_t available_bytes();
// The groups' part, where the system's files lie under `root`.
std::uint64_t left_in_groups(const char* root);

// The headroom as somebody sees it who takes memory now and then: looked up where what was known may not hold any more.
// Address space goes in one call, so where it is limited it is looked at each time; memory that is written to takes
// time, so the less there is left the sooner it is looked at again. Where a filter of system calls was set nothing is
// looked at: what was known goes on, less what the asker took; where nothing was known yet it is kUnknown.
class Headroom {
 public:
  // A little, whatever the asker has: who keeps no more than that is not what ends a process that could start a driver.
  static constexpr std::uint64_t kUnknown = std::uint64_t{128} << 20;

  struct Question {
    std::uint64_t taken_bytes = 0;  // what the asker has of the memory by now
    std::uint64_t now_ns = 0;       // of the coarse clock
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
  std::atomic<std::uint64_t> available_{0}, taken_at_look_{0};      // of groups and machine; 0 until the first look
  std::atomic<std::uint64_t> addressable_{0}, taken_at_limits_{0};  // of the process's own limits
};

}  // namespace cistern
