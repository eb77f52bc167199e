// This process's live page (process/live_page.hpp): made where CISTERN_LIVE asks for it, and answered by the thread of
// requests.hpp. With `on` the page is made when the process first uses a GPU; the first call for a GPU that sees a
// request starts the thread. So a process that is never asked has no thread of ours. With `thread` both are there from
// the start.
#pragma once
#include <atomic>
#include <cstdint>

namespace cistern::live {

// Nothing, unless it was asked for. Each is idempotent.
void note_start();     // where a thread may be started: behind constructors
void note_gpu_used();  // under no lock
void end();            // the process ends: its files go
// Before the calling thread's capabilities change: the kernel has them for each thread, and the C library aborts where
// one thread is refused what another may. The next call for a GPU that sees a request starts a new one.
void dismiss_thread();
// Around a filter of system calls, which may forbid ours.
void leave();
void come_back();
void after_fork_in_child();

// Counted up and woken by who asks; null: there is no page.
std::atomic<std::uint32_t>* bell();
// All that was asked since the last time; called by the thread of requests.hpp.
void answer();

}  // namespace cistern::live
