// What happens to the state of CUDA at a fork.
#pragma once

namespace cistern::cuda {

void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

}  // namespace cistern::cuda
