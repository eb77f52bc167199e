// Functions that Cistern calls on its own account and that a driver lacks: what needs one of them is off for that
// driver's objects, and one line says so. All others answer as a failed call does.
#pragma once
#include "shim/opencl/table.hpp"

namespace cistern::opencl {

bool lacks_function_for_pool(cl_context context);
bool lacks_function_for_staging(cl_command_queue queue);

}  // namespace cistern::opencl
