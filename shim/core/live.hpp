// This process's live page (process/live_page.hpp): made where CISTERN_LIVE asks for it, and answered by the thread of
// requests.hpp. With `on` the page is made when the process first uses a GPU; the first call for a GPU that sees a
// request starts the thread. So a process that is never asked has no thread of ours. With `thread` both are there from
// the start.
#pragma once
#include <atomic>
#include <cstdint>

#include "shim/process/process.hpp"

namespace cistern::live {

// Where a thread may be started: behind constructors. (Processes without one do not even look at the code.)
void start();
inline void note_start() {
  if (options().live == "thread") start();
}
void note_gpu_used();  // under no lock
// The process ends: its files go. Idempotent.
void remove_files();
inline constinit std::atomic<bool> has_files{false};
inline void end() {
  if (has_files.load(std::memory_order_relaxed)) remove_files();
}
// Before the calling thread's capabilities change: the kernel has them for each thread, and the C library aborts where
// one thread is refused what another may. The next call for a GPU that sees a request starts a new one.
void dismiss_thread();
// Around a filter of system calls, which may forbid ours.
void leave();
void come_back();
void begin_anew_in_child();
inline void after_fork_in_child() {
  if (has_files.load(std::memory_order_relaxed)) begin_anew_in_child();
}

// Counted up and woken by who asks; null: there is no page.
std::atomic<std::uint32_t>* bell();
// All that was asked since the last time; called by the thread of requests.hpp.
void answer();

}  // namespace cistern::live
