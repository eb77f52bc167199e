// A host function as a task.
#pragma once
#include "tests/simcuda/driver/graph.hpp"

namespace simcuda {

Task host_task(CUhostFn function, void* argument);

}  // namespace simcuda
