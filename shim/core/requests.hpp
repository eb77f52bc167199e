// A thread that answers who asks a running process: a signal that asks for a report (CISTERN_REPORT_SIGNAL), and the
// live page (live.hpp). The signal's handler only wakes it: the program goes on, so nothing may hang that it needs. The
// same thread does what CISTERN_MAINTENANCE asks for (maintenance.hpp).
#pragma once

namespace cistern {

// Starts the thread, if there is none. False: it can't be started.
bool await_requests();
// Ends it, before a filter of system calls is set, which may forbid those that it makes, and before capabilities change
// (live.hpp).
void dismiss_requests();
// The same where it can be done soon.
void dismiss_requests_at_exit();
// It was the parent's.
void requests_after_fork_in_child();
// Safe in a signal handler.
void request_report();

}  // namespace cistern
