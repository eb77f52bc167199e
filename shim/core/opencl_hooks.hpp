// What is done to each OpenCL call: one function per row of symbols.def, in opencl_memory_hooks.cpp (buffers,
// images, SVM), opencl_command_hooks.cpp (kernels, commands) and opencl_object_hooks.cpp (contexts, queues, the rest).
#pragma once
#include "backends/opencl_api.hpp"

namespace cistern::opencl::hook {

#define OPENCL_CALL(action, slot, result, name, parameters, arguments) result name parameters;
#define OPENCL_EXTENSION(action, result, name, parameters, arguments) result name parameters;
#include "shim/symbols.def"

}  // namespace cistern::opencl::hook
