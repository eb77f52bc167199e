// Judges live memory: a copy of the process is taken (process/memory_copy.hpp), and in it pointers are followed from
// its mappings (stats/leaks/judge.hpp). What was found is asked for by process/standings.hpp.
#pragma once
#include <cstdint>

namespace cistern {

// What of the calling thread's stack is in use begins there; below it dead frames lie.
void judge_live_memory(const void* stack_in_use);

// For the end of the process: done once, as early as somebody asks.
void judge_at_end(const void* stack_in_use);
void judge_anew_in_child();

}  // namespace cistern
