// The hooks of OpenCL: one function per row of symbols/opencl.def.
//
//   create.cpp    buffers
//   track.cpp     other memory objects
//   release.cpp   retains and releases of both
//   pointers.cpp  SVM, USM
//   command.cpp   kernels, commands
//   copy.cpp      commands that copy
//   object.cpp    contexts, queues, the rest
//
// Room: OpenCL: one function per call.
// May include: pool, backends/opencl, shim/process, shim/staging, shim/opencl.
#pragma once
#include "backends/opencl/api.hpp"

namespace cistern::opencl::hook {

#define OPENCL_CALL(action, slot, result, name, parameters, arguments) result name parameters;
#define OPENCL_EXTENSION(action, result, name, parameters, arguments) result name parameters;
#include "shim/symbols/opencl.def"

}  // namespace cistern::opencl::hook
