// Fork, as the whole of Cistern sees it: see fork.cpp.
#pragma once

namespace cistern {

void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

}  // namespace cistern
