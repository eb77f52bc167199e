// Unified buffers across a fork. Their calls are declared in library.hpp.
#pragma once

namespace cistern::library {

void unified_before_fork();
void unified_after_fork_in_parent();
void unified_after_fork_in_child();

}  // namespace cistern::library
