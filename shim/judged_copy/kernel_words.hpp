// Pointers of the program's that only the kernel has: what epoll hands back with an event, and what a timer's signal
// brings along. What lies in a pipe or a socket, in the queue of signals, or in a request to io_uring that it has
// taken already, nobody can ask for.
#pragma once
#include <cstdint>

namespace cistern {

// For a copy of the process that has its files. `timers`: /proc/PID/timers of the process, opened by it; -1: none.
void visit_words_of_kernel(int timers, void (*visit)(void* context, std::uintptr_t word), void* context);

}  // namespace cistern
