// What the library's calls answer: the status, and the driver's or system's own code behind it, thread by thread.
#pragma once
#include "backends/cuda/api.hpp"
#include "backends/opencl/api.hpp"
#include "cistern/cistern.h"

namespace cistern::library {

// Of the last call of this thread.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local int native = 0;

inline cistern_status refused(int code, cistern_status status = CISTERN_DRIVER) {
  native = code;
  return status;
}

inline cistern_status status_of(cuda::CUresult answer) {
  if (answer == cuda::kSuccess) return CISTERN_OK;
  if (answer == cuda::kOutOfMemory) return refused(answer, CISTERN_NO_MEMORY);
  if (answer == cuda::kInvalidDevice) return refused(answer, CISTERN_INVALID);
  return refused(answer, answer == cuda::kNoDevice ? CISTERN_NO_DRIVER : CISTERN_DRIVER);
}

inline cistern_status status_of_opencl(opencl::cl_int answer) {
  if (answer == opencl::kSuccess) return CISTERN_OK;
  const bool memory = answer == opencl::kMemObjectAllocationFailure || answer == opencl::kOutOfResources ||
                      answer == opencl::kOutOfHostMemory;
  return refused(answer, memory ? CISTERN_NO_MEMORY : CISTERN_DRIVER);
}

}  // namespace cistern::library
