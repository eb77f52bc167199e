// When the system has no memory for malloc: one line, once in a process that may speak, which says what refused it.
#pragma once
#include <cstddef>

namespace cistern::host {

// `bytes`: what was asked for; 0, and what no system could have: not said. Allocates nothing, keeps errno.
void note_out_of_memory(std::size_t bytes);

}  // namespace cistern::host
