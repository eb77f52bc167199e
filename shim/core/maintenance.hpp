// CISTERN_MAINTENANCE: unused memory goes back while the program is idle, too. The thread of requests.hpp does it. A
// process has the thread from the start of main, or from the fork, until exit handlers run.
#pragma once
#include <cstdint>

#include "shim/process/process.hpp"

namespace cistern::maintenance {

// Where a thread may be started: behind constructors, under no lock.
void start();
inline void note_start() {
  if (options().maintenance) start();
}
// Exit begins. It waits for what the thread is at, but not long.
void end_at_exit();
inline void end() {
  if (options().maintenance) end_at_exit();
}

// By the thread: what is due now. How many nanoseconds it may rest.
std::uint64_t work();

}  // namespace cistern::maintenance
