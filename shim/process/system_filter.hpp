// Filters of system calls (seccomp). A process that has one may be killed for a call that it would not make without
// Cistern. The exported prctl and syscall see when a process sets one. From then on, Cistern makes only the calls that
// the C library's malloc makes, and writes nothing at the end unless it was asked to.
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
