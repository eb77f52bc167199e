// What happens to the state of OpenCL at a fork.
#pragma once

namespace cistern::opencl {

void before_fork();
void after_fork_in_parent();
void after_fork_in_child();

}  // namespace cistern::opencl
