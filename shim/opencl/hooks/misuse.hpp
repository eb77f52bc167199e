// What a call gets that names a memory object which the program does not have: already released, or never seen.
#pragma once
#include "shim/opencl/state.hpp"

namespace cistern::opencl {

// A call that retains or releases.
struct CountingCall {
  const char* api;
  cl_int (*real)(cl_mem);
};

// A handle without a record: passed on if it may be a memory object, else refused.
cl_int answer_unknown(cl_mem memory, const CountingCall& call);
// A handle whose record is dead or pooled: refused, unless another object may stand there now.
cl_int answer_released(cl_mem memory, const CountingCall& call, const MemoryRecord& record);
// Says so; returns the native error.
cl_int refuse_released(cl_mem memory, const char* api, const MemoryRecord& record);

}  // namespace cistern::opencl
