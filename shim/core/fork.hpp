// Fork, as the whole of Cistern sees it: see fork.cpp.
#pragma once

namespace cistern {

void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

// In a child that one of several threads forked. What the others changed while the system copied the process is there
// in part: a block may be free of which the program still has the pointer.
bool forked_beside_threads();

}  // namespace cistern
