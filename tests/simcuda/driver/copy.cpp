// Copies in one dimension, and the rules on when a copy returns.
#include "tests/simcuda/driver/copy.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/device_work.hpp"
#include "tests/simcuda/driver/mapped_file.hpp"
#include "tests/simcuda/driver/memory.hpp"
#include "tests/simcuda/driver/settings.hpp"

namespace simcuda {
namespace {

// A copy that goes over a link.
struct Route {
  Link* link;
  Direction direction;
  bool pageable;
  HostMemory memory = HostMemory::kAnonymous;
};

// Looked up only where it has a price.
HostMemory memory_at(const Side& side) {
  return side.pageable && settings.file_page_ns && is_mapped_file(side.address) ? HostMemory::kFile
                                                                                : HostMemory::kAnonymous;
}

// [assumed] Managed memory is where it is used: copies of it need no link. Nor do those within a device and between
// two.
std::optional<Route> route_of(const ShapedCopy& what) {
  if (what.to.device && (what.from.pageable || what.from.pinned))
    return Route{&what.to.device->link, Direction::kToDevice, what.from.pageable, memory_at(what.from)};
  if (what.from.device && (what.to.pageable || what.to.pinned))
    return Route{&what.from.device->link, Direction::kToHost, what.to.pageable, memory_at(what.to)};
  return std::nullopt;
}

void count(const Route& route, size_t bytes) {
  (route.pageable ? counters.pageable_bytes : counters.pinned_bytes) += static_cast<long long>(bytes);
}

void* place_of(const Side& side, size_t slice, size_t row, size_t column) {
  return reinterpret_cast<void*>(side.address + slice * side.slice_pitch + row * side.row_pitch + column);
}

// Bytes of a copy as if its rows followed each other.
void move_part(const ShapedCopy& what, size_t begin, size_t bytes) {
  const Shape& shape = what.shape;
  while (bytes) {
    const size_t line = begin / shape.row_bytes, column = begin % shape.row_bytes;
    const size_t slice = line / shape.rows, row = line % shape.rows;
    const size_t run = std::min(shape.row_bytes - column, bytes);
    std::memmove(place_of(what.to, slice, row, column), place_of(what.from, slice, row, column), run);
    begin += run;
    bytes -= run;
  }
}

Touched touched(const Side& side, const Shape& shape, bool writes) {
  const size_t bytes = (shape.slices - 1) * side.slice_pitch + (shape.rows - 1) * side.row_pitch + shape.row_bytes;
  return {side.address, bytes, writes, side.accessed_by};
}

Task task_with(Locked& lock, const ShapedCopy& what, std::function<void()> work) {
  Task task{CU_GRAPH_NODE_TYPE_MEMCPY, std::move(work)};
  add_touched(lock, task.touched, touched(what.from, what.shape, false));
  add_touched(lock, task.touched, touched(what.to, what.shape, true));
  return task;
}

// The first bytes of a copy.
Task task_of(Locked& lock, const ShapedCopy& what, size_t bytes) {
  return task_with(lock, what, [what, bytes] {
    const auto move = [&](size_t begin, size_t part) { touch_memory([&] { move_part(what, begin, part); }); };
    const auto route = route_of(what);
    if (!route) return move(0, bytes);
    count(*route, bytes);
    if (route->pageable) return route->link->send_pageable(route->direction, route->memory, bytes, move);
    route->link->send(route->direction, bytes, move);
  });
}

// The rest of a pageable source, from a byte on, as it is now: what follows may change it.
class Staged {
 public:
  Staged(const ShapedCopy& what, size_t begin)
      : what_(what),
        begin_(begin),
        bytes_(what.shape.bytes() - begin),
        memory_(new unsigned char[bytes_]),
        // As if the bytes before it lay there too.
        middle_{reinterpret_cast<uintptr_t>(memory_.get()) - begin, what.shape.row_bytes,
                what.shape.row_bytes * what.shape.rows} {}
  // The part is counted from begin.
  void read(size_t first, size_t part) const { move_part({middle_, what_.from, what_.shape}, begin_ + first, part); }
  void write(size_t first, size_t part) const {
    touch_memory([&] { move_part({what_.to, middle_, what_.shape}, begin_ + first, part); });
  }
  size_t bytes() const { return bytes_; }

 private:
  ShapedCopy what_;
  size_t begin_, bytes_;
  std::shared_ptr<unsigned char[]> memory_;
  Side middle_;
};

// Its source is read here immediately, and takes no time.
Task staged_task(Locked& lock, const ShapedCopy& what) {
  const Staged staged(what, 0);
  const auto route = route_of(what);
  staged.read(0, staged.bytes());
  if (route) count(*route, staged.bytes());
  return task_with(lock, what, [staged, route] {
    const auto write = [&](size_t begin, size_t part) { staged.write(begin, part); };
    if (!route) return write(0, staged.bytes());
    route->link->send_pageable(route->direction, route->memory, staged.bytes(), write);
  });
}

// An asynchronous copy to the device through the driver's buffer: it returns when the last that the buffer can hold was
// read. What is before that must be on the device then, so the copy waits for the stream's earlier work too.
CUresult copy_through_buffer(Locked& lock, const StreamPointer& stream, const ShapedCopy& what, const Route& route) {
  const size_t bytes = what.shape.bytes(), first = bytes - std::min(bytes, Link::kBufferBytes);
  if (first)
    if (const CUresult result = enqueue(lock, stream, task_of(lock, what, first), Wait::kYes)) return result;
  const Staged staged(what, first);
  lock.unlock();
  route.link->read_into_buffer(route.memory, staged.bytes(),
                               [&](size_t begin, size_t part) { staged.read(begin, part); });
  lock.lock();
  count(route, staged.bytes());
  return enqueue(lock, stream, task_with(lock, what, [staged, link = route.link] {
                   link->send_from_buffer(staged.bytes(),
                                          [&](size_t begin, size_t part) { staged.write(begin, part); });
                 }));
}

// The stream 0 of calls that take no stream.
StreamPointer default_stream(Locked& lock, CUresult& result) { return find_stream(lock, nullptr, result); }

}  // namespace

bool is_device_range(Locked&, uintptr_t address, size_t bytes) {
  return !bytes || driver().allocations.covers(address, bytes);
}

void describe_memory(Locked&, Side& side) {
  const Allocation* allocation = driver().allocations.find(side.address);
  side.pageable = !allocation;
  side.pinned = allocation && allocation->host_memory();
  if (allocation && allocation->on_device())
    side.device = driver().devices[static_cast<size_t>(allocation->device)].get();
}

Task copy_task(Locked& lock, const ShapedCopy& what) { return task_of(lock, what, what.shape.bytes()); }

// [documented] "API synchronization behavior": a synchronous copy returns when it is done, but one within the device
// does not wait for it. An asynchronous one from pageable memory returns when the source was read, one to pageable
// memory when it is done; with pinned memory it returns at once and the source is read late.
CUresult copy(Locked& lock, const StreamPointer& stream, const ShapedCopy& what, CopyCall call) {
  if (!what.shape.bytes()) return CUDA_SUCCESS;
  const bool within_device = what.to.device && what.from.device;
  counters.host_copies += !within_device;
  if (call == CopyCall::kSynchronous)
    return enqueue(lock, stream, copy_task(lock, what), within_device ? Wait::kNo : Wait::kYes);
  // [documented] A captured copy reads its source when the graph runs, pageable or not.
  if (stream->capture || call == CopyCall::kInStreamOrder) return enqueue(lock, stream, copy_task(lock, what));
  if (what.to.pageable) return enqueue(lock, stream, copy_task(lock, what), Wait::kYes);
  if (!what.from.pageable) return enqueue(lock, stream, copy_task(lock, what));
  const auto route = route_of(what);
  if (route && Link::has_buffer()) return copy_through_buffer(lock, stream, what, *route);
  // [assumed] The engine reads the file itself, page by page, so the call waits for it.
  if (route && route->memory == HostMemory::kFile) return enqueue(lock, stream, copy_task(lock, what), Wait::kYes);
  return enqueue(lock, stream, staged_task(lock, what));
}

}  // namespace simcuda

using namespace simcuda;

namespace {

// The kind of memory that the call's name gives an argument.
enum class Is { kHost, kDevice, kEither };

// Null: the argument is not what the call's name says.
bool make_side(Locked& lock, uintptr_t address, size_t bytes, Is is, Side& side) {
  side = {address, bytes, bytes};
  describe_memory(lock, side);
  if (is == Is::kDevice && !is_device_range(lock, address, bytes)) return false;
  // [assumed] A device pointer given as a host pointer is an invalid value.
  if (is == Is::kHost && side.device) return false;
  return is != Is::kEither || side.pageable || is_device_range(lock, address, bytes);
}

struct Ends {
  uintptr_t to, from;
  Is to_is, from_is;
  CUcontext to_context = nullptr, from_context = nullptr;  // set in a copy between two contexts
};

// [cited: PyTorch's caching allocator] A copy between two contexts uses the device of each for its own side, so neither
// needs access to the other's virtual memory. For any other copy the device of the stream needs access to both sides.
int accessed_by(Locked& lock, CUcontext handle) {
  const Context* context = handle ? find_context(lock, handle) : nullptr;
  return context ? context->device->ordinal : Touched::kDeviceOfCommand;
}

CUresult copy_linear(const Ends& ends, size_t bytes, CUstream stream_handle, CopyCall call) {
  Locked lock = lock_driver();
  CUresult result;
  const StreamPointer stream =
      call == CopyCall::kSynchronous ? default_stream(lock, result) : find_stream(lock, stream_handle, result);
  if (!stream) return result;
  ShapedCopy what{{}, {}, {.row_bytes = bytes}};
  if (!make_side(lock, ends.to, bytes, ends.to_is, what.to) ||
      !make_side(lock, ends.from, bytes, ends.from_is, what.from))
    return CUDA_ERROR_INVALID_VALUE;
  what.to.accessed_by = accessed_by(lock, ends.to_context);
  what.from.accessed_by = accessed_by(lock, ends.from_context);
  return copy(lock, stream, what, call);
}

Ends host_to_device(CUdeviceptr to, const void* from) { return {to, to_address(from), Is::kDevice, Is::kHost}; }
Ends device_to_host(void* to, CUdeviceptr from) { return {to_address(to), from, Is::kHost, Is::kDevice}; }
Ends device_to_device(CUdeviceptr to, CUdeviceptr from) { return {to, from, Is::kDevice, Is::kDevice}; }
Ends between(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context) {
  return {to, from, Is::kDevice, Is::kDevice, to_context, from_context};
}
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

extern "C" CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                                 size_t bytes) {
  SIMCUDA_CALL(kOrdinary);
  return copy_linear(between(to, to_context, from, from_context), bytes, nullptr, CopyCall::kSynchronous);
}
SIMCUDA_PER_THREAD_STREAM(cuMemcpyPeer, _ptds,
                          (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                           size_t bytes),
                          (to, to_context, from, from_context, bytes))

extern "C" CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                                      size_t bytes, CUstream stream) {
  SIMCUDA_CALL(kOrdinary);
  return copy_linear(between(to, to_context, from, from_context), bytes, stream, CopyCall::kAsynchronous);
}
SIMCUDA_PER_THREAD_STREAM(cuMemcpyPeerAsync, _ptsz,
                          (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                           CUstream stream),
                          (to, to_context, from, from_context, bytes, stream))
