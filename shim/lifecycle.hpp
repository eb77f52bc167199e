// The ends of a process as the rest of the shim sees them.
#pragma once

namespace cistern {

// For a Cistern that was not preloaded but loaded as an OpenCL layer: no exported function of it sees exit begin, so
// an exit handler does. Without effect when preloaded. Idempotent.
void watch_exit_from_layer();

// False in a child of vfork, which has the parent's memory.
bool in_own_process();

// In a child of vfork, or of a fork by a system call of the program's own: what is noted may be the parent's, and a
// lock may be held for ever, by a thread of the parent. Under a filter of system calls it can't be asked: false.
bool in_child_unprepared();

// Neither in malloc nor under a lock of ours, nor in a child of vfork: where a signal handler asks, this thread may not
// go on before it has returned.
bool may_report_on_a_large_stack();
bool may_report_here();

}  // namespace cistern
