// What is done in the judging child, a copy of the process: it makes the world of the judge (stats/leaks/judge.hpp),
// and the judge marks what can be reached.
#pragma once
#include <cstddef>

namespace cistern::judging {

// The work of memory_copy.hpp; `context` is the Plan.
bool judge_in_copy(void* context);

// What it takes at most. Of address space; of what the child does not touch there is none.
std::size_t child_bytes();

}  // namespace cistern::judging
