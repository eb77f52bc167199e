// The calls of the C interface that are OpenCL's by name (cistern/cistern.h). Thin: each to the function that its hook
// calls too.
#include "shim/library/library.hpp"
#include "shim/library/pools.hpp"
#include "shim/opencl/buffers.hpp"
#include "shim/opencl/next.hpp"
#include "shim/opencl/state.hpp"
#include "stats/sites.hpp"

namespace cistern::library {
namespace {

opencl::cl_context own(struct _cl_context* context) { return reinterpret_cast<opencl::cl_context>(context); }

}  // namespace

struct _cl_mem* opencl_allocate(struct _cl_context* context, uint64_t flags, size_t bytes, int32_t* error) {
  const CalledFrom here(__builtin_return_address(0), Calls::some);
  if (!opencl::next().clCreateBuffer) {
    if (error) *error = opencl::kInvalidContext;
    return nullptr;
  }
  opencl::make_context_known(own(context));
  return reinterpret_cast<struct _cl_mem*>(opencl::create_buffer({own(context), flags, bytes}, nullptr, error));
}

int32_t opencl_deallocate(struct _cl_mem* buffer, struct _cl_command_queue* last_queue) {
  const CalledFrom here(__builtin_return_address(0), Calls::some);
  if (refuse_block_of_pool("cistern_opencl_deallocate", buffer)) return opencl::kInvalidMemObject;
  if (!buffer || !opencl::next().clReleaseMemObject) return opencl::kInvalidMemObject;
  auto* memory = reinterpret_cast<opencl::cl_mem>(buffer);
  if (last_queue) opencl::note_last_queue(memory, reinterpret_cast<opencl::cl_command_queue>(last_queue));
  return opencl::release_memory(memory);
}

void opencl_forget_context(struct _cl_context* context) {
  opencl::drain_context(own(context));
  opencl::make_context_unknown(own(context));
}

}  // namespace cistern::library
