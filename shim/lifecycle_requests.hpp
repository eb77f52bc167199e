// Reports of a running process that a signal asks for (CISTERN_REPORT_SIGNAL). The handler only wakes a thread, which
// was started because the option asks for it: the program goes on, so nothing may hang that it needs.
#pragma once

namespace cistern {

// Starts the thread. False: there is none.
bool await_requests();
// Ends it, before a filter of system calls is set, which may forbid those that it makes.
void dismiss_requests();
// Safe in a signal handler.
void request_report();

}  // namespace cistern
