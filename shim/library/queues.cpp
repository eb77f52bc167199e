// Work on streams and queues (cistern/queue.h): each call through the hook that the program's own would reach, so that
// it is counted, and staged where that is faster.
#include "shim/library/queues.hpp"

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <bit>

#include "pool/base/internal_memory.hpp"
#include "shim/cuda/hooks/hooks.hpp"
#include "shim/library/answers.hpp"
#include "shim/library/devices.hpp"
#include "shim/library/library.hpp"
#include "shim/opencl/hooks/hooks.hpp"
#include "shim/opencl/next.hpp"
#include "stats/sites.hpp"

namespace cistern::library {
namespace {

constexpr unsigned kWithoutTiming = 2;  // CU_EVENT_DISABLE_TIMING

bool is_kind(cistern_kind kind) { return kind >= CISTERN_HOST && kind <= CISTERN_MANAGED; }
bool is_right(const cistern_part* part) { return part && part->block && is_kind(part->kind); }
// Host memory but of a driver's own is copied and filled at once where no driver is asked.
bool is_host(const cistern_part& part) { return part.kind == CISTERN_HOST; }

char* host_address(const cistern_part& part) { return static_cast<char*>(part.block) + part.offset; }
cuda::CUdeviceptr address(const cistern_part& part) {
  return static_cast<cuda::CUdeviceptr>(reinterpret_cast<std::uintptr_t>(part.block)) + part.offset;
}
opencl::cl_mem buffer(const cistern_part& part) { return static_cast<opencl::cl_mem>(part.block); }
opencl::cl_command_queue opencl_queue(void* queue) { return static_cast<opencl::cl_command_queue>(queue); }
cuda::CUstream stream(void* queue) { return static_cast<cuda::CUstream>(queue); }

bool opencl_found() { return opencl::next().clEnqueueWriteBuffer && opencl::next().clFinish; }

// Of CUDA: without a queue the caller waits.
cistern_status done(cuda::CUresult answer, void* queue) {
  if (answer == cuda::kSuccess && !queue) answer = cuda::hook::cuStreamSynchronize(nullptr);
  return status_of(answer);
}

cistern_status copy_by_opencl(const cistern_part& target, const cistern_part& source, std::size_t bytes, void* queue,
                              bool read_waits = false) {
  if (!queue) return CISTERN_INVALID;
  if (!opencl_found()) return CISTERN_NO_DRIVER;
  auto* const on = opencl_queue(queue);
  constexpr opencl::cl_uint kReturnsAtOnce = 0;
  if (is_host(source))
    return status_of_opencl(opencl::hook::clEnqueueWriteBuffer(on, buffer(target), kReturnsAtOnce, target.offset, bytes,
                                                               host_address(source), 0, nullptr, nullptr));
  if (is_host(target))
    return status_of_opencl(opencl::hook::clEnqueueReadBuffer(on, buffer(source), read_waits, source.offset, bytes,
                                                              host_address(target), 0, nullptr, nullptr));
  return status_of_opencl(opencl::hook::clEnqueueCopyBuffer(on, buffer(source), buffer(target), source.offset,
                                                            target.offset, bytes, 0, nullptr, nullptr));
}

// Of what has its pattern at its beginning the rest: each copy takes all that is there already.
template <class Copy>
cistern_status repeat(std::size_t pattern_bytes, std::size_t bytes, Copy copy) {
  cistern_status status = CISTERN_OK;
  for (std::size_t there = pattern_bytes; there < bytes && status == CISTERN_OK; there *= 2)
    status = copy(there, std::min(there, bytes - there));
  return status;
}

void fill_host(char* target, const void* pattern, std::size_t pattern_bytes, std::size_t bytes) {
  memcpy(target, pattern, std::min(pattern_bytes, bytes));
  repeat(pattern_bytes, bytes, [&](std::size_t to, std::size_t count) {
    memcpy(target + to, target, count);
    return CISTERN_OK;
  });
}

cistern_status enqueue(const cistern_part& target, const cistern_part& source, std::size_t bytes, void* queue) {
  if (target.kind == CISTERN_OPENCL) return copy_by_opencl(target, source, bytes, queue);
  return status_of(cuda::hook::cuMemcpyAsync(address(target), address(source), bytes, stream(queue)));
}

cistern_status wait(cistern_kind kind, void* queue) {
  return kind == CISTERN_OPENCL ? status_of_opencl(opencl::hook::clFinish(opencl_queue(queue)))
                                : status_of(cuda::hook::cuStreamSynchronize(stream(queue)));
}

// The caller's pattern is his again when this returns: a copy of it is read late, and stays where nobody knows whether
// it was.
cistern_status fill_by_copies(const cistern_part& target, const void* pattern, std::size_t pattern_bytes,
                              std::size_t bytes, void* queue) {
  const std::size_t first_bytes = std::min(pattern_bytes, bytes);
  void* const first = internal_try_allocate(first_bytes);
  if (!first) return refused(ENOMEM, CISTERN_NO_MEMORY);
  memcpy(first, pattern, first_bytes);
  cistern_status status = enqueue(target, {CISTERN_HOST, first, 0}, first_bytes, queue);
  if (status == CISTERN_OK)
    status = repeat(first_bytes, bytes, [&](std::size_t to, std::size_t count) {
      return enqueue({target.kind, target.block, target.offset + to}, target, count, queue);
    });
  const int code = native;
  const cistern_status waited = wait(target.kind, queue);
  if (waited != CISTERN_OK) return waited;
  internal_deallocate(first, first_bytes);
  native = code;
  return status;
}

cistern_status fill_by_opencl(const cistern_part& target, const void* pattern, std::size_t pattern_bytes,
                              std::size_t bytes, void* queue) {
  if (!queue) return CISTERN_INVALID;
  if (!opencl_found() || !opencl::next().clEnqueueFillBuffer.is_there_for(queue)) return CISTERN_NO_DRIVER;
  constexpr std::size_t kPatternMax = 128;
  const bool is_whole = bytes % pattern_bytes == 0 && target.offset % pattern_bytes == 0;
  if (std::has_single_bit(pattern_bytes) && pattern_bytes <= kPatternMax && is_whole)
    return status_of_opencl(opencl::hook::clEnqueueFillBuffer(
        opencl_queue(queue), buffer(target), pattern, pattern_bytes, target.offset, bytes, 0, nullptr, nullptr));
  return fill_by_copies(target, pattern, pattern_bytes, bytes, queue);
}

// All bytes of the pattern are the same.
bool is_of_one(const char* pattern, std::size_t bytes) {
  return std::all_of(pattern, pattern + bytes, [&](char byte) { return byte == *pattern; });
}

cistern_status fill_by_cuda(const cistern_part& target, const void* pattern, std::size_t pattern_bytes,
                            std::size_t bytes, void* queue) {
  const cuda::CUdeviceptr to = address(target);
  const bool is_whole = bytes % pattern_bytes == 0 && to % pattern_bytes == 0;
  if (is_of_one(static_cast<const char*>(pattern), pattern_bytes))
    return done(cuda::hook::cuMemsetD8Async(to, *static_cast<const unsigned char*>(pattern), bytes, stream(queue)),
                queue);
  if (is_whole && pattern_bytes == sizeof(std::uint16_t)) {
    std::uint16_t value;
    memcpy(&value, pattern, sizeof value);
    return done(cuda::hook::cuMemsetD16Async(to, value, bytes / sizeof value, stream(queue)), queue);
  }
  if (is_whole && pattern_bytes == sizeof(std::uint32_t)) {
    std::uint32_t value;
    memcpy(&value, pattern, sizeof value);
    return done(cuda::hook::cuMemsetD32Async(to, value, bytes / sizeof value, stream(queue)), queue);
  }
  return fill_by_copies(target, pattern, pattern_bytes, bytes, queue);
}

cistern_status follow_by_opencl(void* queue, void* other) {
  if (!queue || !other) return CISTERN_INVALID;
  if (!opencl_found()) return CISTERN_NO_DRIVER;
  if (!opencl::next().clEnqueueMarkerWithWaitList.is_there_for(other) ||
      !opencl::next().clEnqueueBarrierWithWaitList.is_there_for(queue))
    return CISTERN_NO_DRIVER;
  opencl::cl_event reached = nullptr;
  opencl::cl_int answer = opencl::hook::clEnqueueMarkerWithWaitList(opencl_queue(other), 0, nullptr, &reached);
  if (answer != opencl::kSuccess) return status_of_opencl(answer);
  answer = opencl::next().clFlush.own(opencl_queue(other));
  if (answer == opencl::kSuccess)
    answer = opencl::hook::clEnqueueBarrierWithWaitList(opencl_queue(queue), 1, &reached, nullptr);
  opencl::hook::clReleaseEvent(reached);
  return status_of_opencl(answer);
}

cistern_status follow_by_cuda(void* queue, void* other) {
  cuda::CUevent reached = nullptr;
  cuda::CUresult answer = cuda::hook::cuEventCreate(&reached, kWithoutTiming);
  if (answer != cuda::kSuccess) return status_of(answer);
  answer = cuda::hook::cuEventRecord(reached, stream(other));
  if (answer == cuda::kSuccess) answer = cuda::hook::cuStreamWaitEvent(stream(queue), reached, 0);
  const cuda::CUresult ended = cuda::hook::cuEventDestroy_v2(reached);
  return status_of(answer == cuda::kSuccess ? ended : answer);
}

}  // namespace

cistern_status read_and_wait(const cistern_part& target, const cistern_part& source, std::size_t bytes, int device,
                             void* queue) {
  if (source.kind == CISTERN_OPENCL) return copy_by_opencl(target, source, bytes, queue, true);
  const OnDevice there(device);
  if (!there) return status_of(there.answer());
  const cuda::CUresult answer = cuda::hook::cuMemcpyAsync(address(target), address(source), bytes, stream(queue));
  return status_of(answer == cuda::kSuccess ? cuda::hook::cuStreamSynchronize(stream(queue)) : answer);
}

cistern_status enqueue_copy(const cistern_part* target, const cistern_part* source, size_t bytes, int device,
                            void* queue) {
  const CalledFrom here(__builtin_return_address(0), Calls::some);
  native = 0;
  if (!is_right(target) || !is_right(source)) return CISTERN_INVALID;
  if (!bytes) return CISTERN_OK;
  if (is_host(*target) && is_host(*source)) {
    memcpy(host_address(*target), host_address(*source), bytes);
    return CISTERN_OK;
  }
  const bool one = target->kind == CISTERN_OPENCL, other = source->kind == CISTERN_OPENCL;
  if (one || other) {
    const bool may_mix = (one || is_host(*target)) && (other || is_host(*source));
    return may_mix ? copy_by_opencl(*target, *source, bytes, queue) : CISTERN_MISMATCH;
  }
  if (!cuda::driver_found()) return CISTERN_NO_DRIVER;
  const OnDevice there(device);
  if (!there) return status_of(there.answer());
  return done(cuda::hook::cuMemcpyAsync(address(*target), address(*source), bytes, stream(queue)), queue);
}

cistern_status enqueue_fill(const cistern_part* target, const void* pattern, size_t pattern_bytes, size_t bytes,
                            int device, void* queue) {
  const CalledFrom here(__builtin_return_address(0), Calls::some);
  native = 0;
  if (!is_right(target) || !pattern || !pattern_bytes) return CISTERN_INVALID;
  if (!bytes) return CISTERN_OK;
  if (is_host(*target)) {
    fill_host(host_address(*target), pattern, pattern_bytes, bytes);
    return CISTERN_OK;
  }
  if (target->kind == CISTERN_OPENCL) return fill_by_opencl(*target, pattern, pattern_bytes, bytes, queue);
  if (!cuda::driver_found()) return CISTERN_NO_DRIVER;
  const OnDevice there(device);
  return there ? fill_by_cuda(*target, pattern, pattern_bytes, bytes, queue) : status_of(there.answer());
}

cistern_status queue_follow(cistern_kind kind, int device, void* queue, void* other) {
  native = 0;
  if (!is_kind(kind) || kind == CISTERN_HOST) return CISTERN_INVALID;
  if (queue == other) return CISTERN_OK;
  if (kind == CISTERN_OPENCL) return follow_by_opencl(queue, other);
  if (!cuda::driver_found()) return CISTERN_NO_DRIVER;
  const OnDevice there(device);
  return there ? follow_by_cuda(queue, other) : status_of(there.answer());
}

cistern_status queue_wait(cistern_kind kind, int device, void* queue) {
  native = 0;
  if (!is_kind(kind) || kind == CISTERN_HOST) return CISTERN_INVALID;
  if (kind == CISTERN_OPENCL) {
    if (!queue) return CISTERN_INVALID;
    return opencl_found() ? wait(kind, queue) : CISTERN_NO_DRIVER;
  }
  if (!cuda::driver_found()) return CISTERN_NO_DRIVER;
  const OnDevice there(device);
  return there ? wait(kind, queue) : status_of(there.answer());
}

}  // namespace cistern::library
