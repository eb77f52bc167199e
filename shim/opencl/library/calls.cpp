// The calls of the C interface that are OpenCL's by name (cistern/cistern.h). Thin: each to the function that its hook
// calls too.
#include "shim/library/library.hpp"
#include "shim/library/pools.hpp"
#include "shim/opencl/buffers.hpp"
#include "shim/opencl/library/answers.hpp"
#include "shim/opencl/next.hpp"
#include "shim/opencl/state.hpp"
#include "stats/sites.hpp"

namespace cistern::library {
namespace {

opencl::cl_context own(struct _cl_context* context) { return reinterpret_cast<opencl::cl_context>(context); }

// The driver refuses what the program gave.
bool is_about_an_argument(opencl::cl_int answer) {
  return answer == opencl::kInvalidValue || answer == opencl::kInvalidContext || answer == opencl::kInvalidMemObject ||
         answer == opencl::kInvalidBufferSize;
}

cistern_status status_of_call(opencl::cl_int answer) {
  return is_about_an_argument(answer) ? refused(answer, CISTERN_INVALID) : opencl::status_of(answer);
}

}  // namespace

cistern_status opencl_allocate(struct _cl_context* context, uint64_t flags, size_t bytes, struct _cl_mem** buffer) {
  const CalledFrom here(__builtin_return_address(0), Calls::occasional);
  native = 0;
  if (!buffer) return CISTERN_INVALID;
  *buffer = nullptr;
  if (!opencl::next().clCreateBuffer) return CISTERN_NO_DRIVER;
  opencl::make_context_known(own(context));
  opencl::cl_int answer = opencl::kSuccess;
  *buffer = reinterpret_cast<struct _cl_mem*>(opencl::create_buffer({own(context), flags, bytes}, nullptr, &answer));
  return status_of_call(answer);
}

cistern_status opencl_deallocate(struct _cl_mem* buffer, struct _cl_command_queue* last_queue) {
  const CalledFrom here(__builtin_return_address(0), Calls::occasional);
  native = 0;
  if (!buffer || refuse_block_of_pool("cistern_opencl_deallocate", buffer)) return CISTERN_INVALID;
  if (!opencl::next().clReleaseMemObject) return CISTERN_NO_DRIVER;
  auto* memory = reinterpret_cast<opencl::cl_mem>(buffer);
  if (last_queue) opencl::note_last_queue(memory, reinterpret_cast<opencl::cl_command_queue>(last_queue));
  return status_of_call(opencl::release_memory(memory));
}

void opencl_forget_context(struct _cl_context* context) {
  opencl::drain_context(own(context));
  opencl::make_context_unknown(own(context));
}

}  // namespace cistern::library
