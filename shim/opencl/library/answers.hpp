// OpenCL error codes as answers of the library.
//
// Room: the C interface's side of OpenCL: its tables of memory and queues, and the calls that are OpenCL's by name.
// May include: stats, backends/opencl, shim/include/cistern, shim/process, shim/library, shim/opencl,
//   shim/opencl/hooks.
#pragma once
#include "backends/opencl/api.hpp"
#include "shim/library/answers.hpp"

namespace cistern::opencl {

inline cistern_status status_of(cl_int answer) {
  if (answer == kSuccess) return CISTERN_OK;
  const bool memory = answer == kMemObjectAllocationFailure || answer == kOutOfResources || answer == kOutOfHostMemory;
  return library::refused(answer, memory ? CISTERN_NO_MEMORY : CISTERN_DRIVER);
}

}  // namespace cistern::opencl
