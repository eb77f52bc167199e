// The answers to calls that name a memory object which the program does not have: already released, or never seen.
#pragma once
#include <initializer_list>
#include <span>

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

// For a transfer: kInvalidMemObject if it names a buffer that the program has released and the pool keeps; a line says
// so once for each call site. Else kSuccess, also without a queue: the driver refuses the call for that.
cl_int refuse_kept(const char* api, cl_command_queue queue, std::span<const void* const> memory);
inline cl_int refuse_kept(const char* api, cl_command_queue queue, std::initializer_list<const void*> memory) {
  return memory.size() ? refuse_kept(api, queue, std::span(memory)) : kSuccess;
}

}  // namespace cistern::opencl
