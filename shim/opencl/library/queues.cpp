// See queues.hpp: each call through the hook that the program's own would reach, so that it is counted, and staged
// where that is faster.
#include "shim/opencl/library/queues.hpp"

#include <bit>

#include "shim/library/queues.hpp"
#include "shim/opencl/hooks/hooks.hpp"
#include "shim/opencl/library/answers.hpp"
#include "shim/opencl/next.hpp"

namespace cistern::opencl {
namespace {

constexpr cl_uint kQueueDevice = 0x1091;  // CL_QUEUE_DEVICE

bool is_host(const library::BlockPart& part) { return part.kind == CISTERN_HOST; }
char* host_address(const library::BlockPart& part) { return static_cast<char*>(part.block) + part.offset; }
cl_mem buffer(const library::BlockPart& part) { return static_cast<cl_mem>(part.block); }
cl_command_queue on(void* queue) { return static_cast<cl_command_queue>(queue); }

bool is_there() { return next().clEnqueueWriteBuffer && next().clFinish; }

cistern_status copy_and(bool read_waits, const library::BlockPart& target, const library::BlockPart& source,
                        std::size_t bytes, void* queue) {
  if (!is_there()) return CISTERN_NO_DRIVER;
  constexpr cl_uint kReturnsAtOnce = 0;
  if (is_host(source))
    return status_of(hook::clEnqueueWriteBuffer(on(queue), buffer(target), kReturnsAtOnce, target.offset, bytes,
                                                host_address(source), 0, nullptr, nullptr));
  if (is_host(target))
    return status_of(hook::clEnqueueReadBuffer(on(queue), buffer(source), read_waits, source.offset, bytes,
                                               host_address(target), 0, nullptr, nullptr));
  return status_of(hook::clEnqueueCopyBuffer(on(queue), buffer(source), buffer(target), source.offset, target.offset,
                                             bytes, 0, nullptr, nullptr));
}

cistern_status copy(const library::BlockPart& target, const library::BlockPart& source, std::size_t bytes, int,
                    void* queue) {
  return copy_and(false, target, source, bytes, queue);
}

cistern_status read_and_wait(const library::BlockPart& target, const library::BlockPart& source, std::size_t bytes, int,
                             void* queue) {
  return copy_and(true, target, source, bytes, queue);
}

cistern_status wait(int, void* queue) { return is_there() ? status_of(hook::clFinish(on(queue))) : CISTERN_NO_DRIVER; }

cistern_status fill(const library::BlockPart& target, const void* pattern, std::size_t pattern_bytes, std::size_t bytes,
                    int device, void* queue) {
  if (!is_there() || !next().clEnqueueFillBuffer.is_there_for(queue)) return CISTERN_NO_DRIVER;
  constexpr std::size_t kPatternMax = 128;
  const bool is_whole = bytes % pattern_bytes == 0 && target.offset % pattern_bytes == 0;
  if (std::has_single_bit(pattern_bytes) && pattern_bytes <= kPatternMax && is_whole)
    return status_of(hook::clEnqueueFillBuffer(on(queue), buffer(target), pattern, pattern_bytes, target.offset, bytes,
                                               0, nullptr, nullptr));
  return library::fill_by_copies({copy, wait}, target, pattern, pattern_bytes, bytes, device, queue);
}

cistern_status follow(int, void* queue, void* other) {
  if (!is_there()) return CISTERN_NO_DRIVER;
  if (!next().clEnqueueMarkerWithWaitList.is_there_for(other) ||
      !next().clEnqueueBarrierWithWaitList.is_there_for(queue))
    return CISTERN_NO_DRIVER;
  cl_event reached = nullptr;
  cl_int answer = hook::clEnqueueMarkerWithWaitList(on(other), 0, nullptr, &reached);
  if (answer != kSuccess) return status_of(answer);
  answer = next().clFlush.own(on(other));
  if (answer == kSuccess) answer = hook::clEnqueueBarrierWithWaitList(on(queue), 1, &reached, nullptr);
  hook::clReleaseEvent(reached);
  return status_of(answer);
}

cistern_status make(const library::QueueRequest& request, void** queue) {
  if (!next().clCreateCommandQueue) return CISTERN_NO_DRIVER;
  cl_device_id device = nullptr;
  cl_int error = next().clGetCommandQueueInfo.own(on(request.like), kQueueDevice, sizeof device, &device, nullptr);
  if (error == kSuccess)
    *queue = hook::clCreateCommandQueue(static_cast<cl_context>(request.context), device, 0, &error);
  return status_of(error);
}

cistern_status end(int, void* queue) { return status_of(hook::clReleaseCommandQueue(on(queue))); }

// --- Transfers
bool is_theirs(const cistern_copy_request& what) { return what.buffer; }

cl_int make_one(const cistern_copy_request& what) {
  auto* const queue = reinterpret_cast<cl_command_queue>(what.queue);
  auto* const buffer = reinterpret_cast<cl_mem>(what.buffer);
  constexpr cl_uint kWaits = 1;
  const bool has = what.to_device ? next().clEnqueueWriteBuffer != nullptr : next().clEnqueueReadBuffer != nullptr;
  if (!has) return kInvalidContext;
  return what.to_device ? hook::clEnqueueWriteBuffer(queue, buffer, kWaits, what.offset, what.bytes, what.host, 0,
                                                     nullptr, nullptr)
                        : hook::clEnqueueReadBuffer(queue, buffer, kWaits, what.offset, what.bytes, what.host, 0,
                                                    nullptr, nullptr);
}

cistern_status make_copy(library::CopyThread&, const cistern_copy_request& what) { return status_of(make_one(what)); }

bool is_final(int code) {
  constexpr cl_int kFirstInvalid = -30;  // CL_INVALID_VALUE and those below it: wrong arguments
  return code <= kFirstInvalid;
}

}  // namespace

extern constexpr library::KindQueues queues = {
    .needs_queue = true,
    .copy = copy,
    .read_and_wait = read_and_wait,
    .fill = fill,
    .follow = follow,
    .wait = wait,
    .make = make,
    .end = end,
    .is_theirs = is_theirs,
    .make_copy = make_copy,
    .is_final = is_final,
};
static_assert(is_whole(queues));

}  // namespace cistern::opencl
