// Fork, as the state of CUDA sees it.
#pragma once

namespace cistern::cuda {

void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

}  // namespace cistern::cuda
