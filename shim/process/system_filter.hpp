// Filters of system calls (seccomp). A process that has one may be killed for a call that it would not make without us;
// so from the moment that it sets one, seen by the exported prctl and syscall, nothing of ours makes other calls than
// the C library's malloc does, and it says nothing at its end unless it was asked to.
#pragma once
#include <atomic>

namespace cistern {

namespace system_filter {
inline constinit std::atomic<bool> set{false};
}

inline bool system_calls_are_filtered() { return system_filter::set.load(std::memory_order_relaxed); }

// For good. Makes no system call.
void note_system_filter();

}  // namespace cistern
