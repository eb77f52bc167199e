// OpenCL's buffers as the library's pools take and give them: by the functions that the hooks call too.
#include "shim/library/kind_memory.hpp"
#include "shim/opencl/buffers.hpp"
#include "shim/opencl/hooks/hooks.hpp"
#include "shim/opencl/library/answers.hpp"
#include "shim/opencl/library/queues.hpp"
#include "shim/opencl/library_side.hpp"
#include "shim/opencl/next.hpp"

namespace cistern::opencl {
namespace {

using library::BlockRequest;
using library::Taken;

cl_mem buffer_at(const void* block) { return reinterpret_cast<cl_mem>(const_cast<void*>(block)); }

BufferSource::Request request_of(const BlockRequest& request) {
  return {static_cast<cl_context>(request.context), request.flags, request.bytes};
}

cistern_status take(const BlockRequest& request, Taken* taken) {
  if (!next().clCreateBuffer) return CISTERN_NO_DRIVER;
  cl_int error = kSuccess;
  make_context_known(static_cast<cl_context>(request.context));
  taken->base = reinterpret_cast<std::uintptr_t>(create_buffer(request_of(request), nullptr, &error));
  return status_of(error);
}

cistern_status give(const Taken& taken, void* queue, library::InOrder) {
  if (!next().clReleaseMemObject) return CISTERN_NO_DRIVER;
  cl_mem const buffer = buffer_at(reinterpret_cast<const void*>(taken.base));
  if (queue) note_last_queue(buffer, static_cast<cl_command_queue>(queue));
  return status_of(release_memory(buffer));
}

cistern_status reserve(const BlockRequest& request, std::size_t count) {
  if (!next().clCreateBuffer) return CISTERN_NO_DRIVER;
  make_context_known(static_cast<cl_context>(request.context));
  return status_of(reserve_buffers(request_of(request), count));
}

cistern_status copy_contents(void* target, const void* source, std::size_t bytes, int, void* queue) {
  auto* const on = static_cast<cl_command_queue>(queue);
  const cl_int error =
      hook::clEnqueueCopyBuffer(on, buffer_at(source), buffer_at(target), 0, 0, bytes, 0, nullptr, nullptr);
  return status_of(error == kSuccess ? next().clFinish.own(on) : error);
}

}  // namespace

extern constexpr library::KindMemory buffer_memory = {
    .kind = CISTERN_OPENCL,
    .name = "opencl",
    .alignment = SIZE_MAX,  // a handle has none
    .of_context = true,
    .is_handle = true,
    .is_device = true,
    .queues = &queues,
    .take = take,
    .give = give,
    .is_no_block = [](int code) { return code == kInvalidMemObject; },
    .reserve = reserve,
    .copy_contents = copy_contents,
};
static_assert(is_whole(buffer_memory));

}  // namespace cistern::opencl
