// Copies in one dimension, and the rules on when a copy returns.
#include "tests/simcuda/driver/copy.hpp"

#include <cstring>

#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/memory.hpp"

namespace simcuda {
namespace {

// The source as it is now: what follows may change it.
Task staged_task(const Side& to, const Side& from, const Shape& shape) {
  const auto staging = std::make_shared<std::vector<unsigned char>>(shape.row_bytes * shape.rows * shape.slices);
  const Side middle{reinterpret_cast<uintptr_t>(staging->data()), shape.row_bytes, shape.row_bytes * shape.rows};
  move_bytes(middle, from, shape);
  return {CU_GRAPH_NODE_TYPE_MEMCPY, [staging, middle, to, shape] { move_bytes(to, middle, shape); }};
}

// What the handle-less calls mean by the stream 0.
StreamPointer default_stream(Locked& lock, CUresult& result) { return find_stream(lock, nullptr, result); }

}  // namespace

void move_bytes(const Side& to, const Side& from, const Shape& shape) {
  for (size_t slice = 0; slice < shape.slices; ++slice)
    for (size_t row = 0; row < shape.rows; ++row)
      std::memmove(reinterpret_cast<void*>(to.address + slice * to.slice_pitch + row * to.row_pitch),
                   reinterpret_cast<const void*>(from.address + slice * from.slice_pitch + row * from.row_pitch),
                   shape.row_bytes);
}

bool is_pageable(Locked&, uintptr_t address) { return !driver().allocations.find(address); }

bool is_device_range(Locked&, uintptr_t address, size_t bytes) {
  return !bytes || driver().allocations.covers(address, bytes);
}

// [documented] "API synchronization behavior": a synchronous copy returns when it is done, but one within the device
// does not wait for it. An asynchronous one from pageable memory returns when the source was read, one to pageable
// memory when it is done; with pinned memory it returns at once and the source is read late.
CUresult copy(Locked& lock, const StreamPointer& stream, const Side& to, const Side& from, const Shape& shape,
              CopyCall call) {
  if (!shape.row_bytes || !shape.rows || !shape.slices) return CUDA_SUCCESS;
  const bool within_device = to.device && from.device;
  const Task direct{CU_GRAPH_NODE_TYPE_MEMCPY, [to, from, shape] { move_bytes(to, from, shape); }};
  if (call == CopyCall::kSynchronous) return enqueue(lock, stream, direct, within_device ? Wait::kNo : Wait::kYes);
  // [documented] A captured copy reads its source when the graph runs, pageable or not.
  if (stream->capture) return enqueue(lock, stream, direct);
  if (to.pageable) return enqueue(lock, stream, direct, Wait::kYes);
  if (from.pageable) return enqueue(lock, stream, staged_task(to, from, shape));
  return enqueue(lock, stream, direct);
}

}  // namespace simcuda

using namespace simcuda;

namespace {

// What the call's name says of an argument.
enum class Is { kHost, kDevice, kEither };

// Null: the argument is not what the call's name says.
bool make_side(Locked& lock, uintptr_t address, size_t bytes, Is is, Side& side) {
  side = {address, bytes, bytes};
  const Allocation* allocation = driver().allocations.find(address);
  if (is == Is::kDevice && !is_device_range(lock, address, bytes)) return false;
  // [assumed] A device pointer given as a host pointer is an invalid value.
  if (is == Is::kHost && allocation && allocation->on_device()) return false;
  side.device = allocation && allocation->on_device();
  side.pageable = !allocation;
  return is != Is::kEither || !allocation || is_device_range(lock, address, bytes);
}

struct Ends {
  uintptr_t to, from;
  Is to_is, from_is;
};

CUresult copy_linear(const Ends& ends, size_t bytes, CUstream stream_handle, CopyCall call) {
  Locked lock = lock_driver();
  CUresult result;
  const StreamPointer stream =
      call == CopyCall::kSynchronous ? default_stream(lock, result) : find_stream(lock, stream_handle, result);
  if (!stream) return result;
  Side to, from;
  if (!make_side(lock, ends.to, bytes, ends.to_is, to) || !make_side(lock, ends.from, bytes, ends.from_is, from))
    return CUDA_ERROR_INVALID_VALUE;
  return copy(lock, stream, to, from, {.row_bytes = bytes}, call);
}

Ends host_to_device(CUdeviceptr to, const void* from) { return {to, to_address(from), Is::kDevice, Is::kHost}; }
Ends device_to_host(void* to, CUdeviceptr from) { return {to_address(to), from, Is::kHost, Is::kDevice}; }
Ends device_to_device(CUdeviceptr to, CUdeviceptr from) { return {to, from, Is::kDevice, Is::kDevice}; }
Ends any_to_any(CUdeviceptr to, CUdeviceptr from) { return {to, from, Is::kEither, Is::kEither}; }

}  // namespace

extern "C" CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  SIMCUDA_CALL(kOrdinary);
  return copy_linear(any_to_any(to, from), bytes, nullptr, CopyCall::kSynchronous);
}
SIMCUDA_PER_THREAD_STREAM(cuMemcpy, _ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes))

extern "C" CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  SIMCUDA_CALL(kOrdinary);
  return copy_linear(any_to_any(to, from), bytes, stream, CopyCall::kAsynchronous);
}
SIMCUDA_PER_THREAD_STREAM(cuMemcpyAsync, _ptsz, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
                          (to, from, bytes, stream))

extern "C" CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  SIMCUDA_CALL(kOrdinary);
  return copy_linear(host_to_device(to, from), bytes, nullptr, CopyCall::kSynchronous);
}
SIMCUDA_PER_THREAD_STREAM(cuMemcpyHtoD_v2, _ptds, (CUdeviceptr to, const void* from, size_t bytes), (to, from, bytes))

extern "C" CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  SIMCUDA_CALL(kOrdinary);
  return copy_linear(host_to_device(to, from), bytes, stream, CopyCall::kAsynchronous);
}
SIMCUDA_PER_THREAD_STREAM(cuMemcpyHtoDAsync_v2, _ptsz,
                          (CUdeviceptr to, const void* from, size_t bytes, CUstream stream), (to, from, bytes, stream))

extern "C" CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  SIMCUDA_CALL(kOrdinary);
  return copy_linear(device_to_host(to, from), bytes, nullptr, CopyCall::kSynchronous);
}
SIMCUDA_PER_THREAD_STREAM(cuMemcpyDtoH_v2, _ptds, (void* to, CUdeviceptr from, size_t bytes), (to, from, bytes))

extern "C" CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  SIMCUDA_CALL(kOrdinary);
  return copy_linear(device_to_host(to, from), bytes, stream, CopyCall::kAsynchronous);
}
SIMCUDA_PER_THREAD_STREAM(cuMemcpyDtoHAsync_v2, _ptsz, (void* to, CUdeviceptr from, size_t bytes, CUstream stream),
                          (to, from, bytes, stream))

extern "C" CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  SIMCUDA_CALL(kOrdinary);
  return copy_linear(device_to_device(to, from), bytes, nullptr, CopyCall::kSynchronous);
}
SIMCUDA_PER_THREAD_STREAM(cuMemcpyDtoD_v2, _ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes))

extern "C" CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  SIMCUDA_CALL(kOrdinary);
  return copy_linear(device_to_device(to, from), bytes, stream, CopyCall::kAsynchronous);
}
SIMCUDA_PER_THREAD_STREAM(cuMemcpyDtoDAsync_v2, _ptsz,
                          (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream))

extern "C" CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes) {
  SIMCUDA_CALL(kOrdinary);
  return copy_linear(device_to_device(to, from), bytes, nullptr, CopyCall::kSynchronous);
}
SIMCUDA_PER_THREAD_STREAM(cuMemcpyPeer, _ptds,
                          (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                           size_t bytes),
                          (to, to_context, from, from_context, bytes))

extern "C" CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes,
                                      CUstream stream) {
  SIMCUDA_CALL(kOrdinary);
  return copy_linear(device_to_device(to, from), bytes, stream, CopyCall::kAsynchronous);
}
SIMCUDA_PER_THREAD_STREAM(cuMemcpyPeerAsync, _ptsz,
                          (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                           CUstream stream),
                          (to, to_context, from, from_context, bytes, stream))
