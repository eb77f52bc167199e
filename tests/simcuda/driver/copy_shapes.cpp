// cuMemcpy2D, cuMemcpy3D and copies with arrays: all are the one form of CUDA_MEMCPY3D.
#include "tests/simcuda/driver/copy_shapes.hpp"

#include "tests/simcuda/driver/array.hpp"
#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/memory.hpp"

namespace simcuda {
namespace {

struct Origin {
  size_t x_bytes, y, z;
};

struct Plane {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  CUarray array;
  size_t pitch, height;
};

// Where the first byte of one side is. [documented] CU_MEMORYTYPE_UNIFIED: a device field with any address.
CUresult locate(Locked& lock, const Plane& plane, const Origin& origin, const Shape& shape, Side& side) {
  size_t pitch = plane.pitch ? plane.pitch : origin.x_bytes + shape.row_bytes;
  size_t height = plane.height ? plane.height : origin.y + shape.rows;
  uintptr_t base = plane.type == CU_MEMORYTYPE_HOST ? to_address(plane.host) : to_address(plane.device);
  Device* array_device = nullptr;
  if (plane.type == CU_MEMORYTYPE_ARRAY) {
    const Array* array = find_array(lock, plane.array);
    if (!array) return CUDA_ERROR_INVALID_HANDLE;
    base = array->address;
    pitch = array->row_bytes;
    height = array->rows;
    array_device = array->context->device;
    const size_t end = ((origin.z + shape.slices - 1) * height + origin.y + shape.rows) * pitch;
    if (origin.x_bytes + shape.row_bytes > pitch || origin.y + shape.rows > height || end > array->bytes)
      return CUDA_ERROR_INVALID_VALUE;
  }
  // [documented] A pitch must hold a line.
  if (shape.rows > 1 && pitch < origin.x_bytes + shape.row_bytes) return CUDA_ERROR_INVALID_VALUE;
  side.address = base + (origin.z * height + origin.y) * pitch + origin.x_bytes;
  side.row_pitch = pitch;
  side.slice_pitch = pitch * height;
  const size_t bytes = (shape.slices - 1) * side.slice_pitch + (shape.rows - 1) * pitch + shape.row_bytes;
  if (array_device) {
    side.device = array_device;
    return CUDA_SUCCESS;
  }
  describe_memory(lock, side);
  const bool must_be_known =
      plane.type == CU_MEMORYTYPE_DEVICE || (plane.type == CU_MEMORYTYPE_UNIFIED && !side.pageable);
  return must_be_known && !is_device_range(lock, side.address, bytes) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUDA_MEMCPY3D from_2d(const CUDA_MEMCPY2D& flat) {
  CUDA_MEMCPY3D full{};
  full.srcXInBytes = flat.srcXInBytes;
  full.srcY = flat.srcY;
  full.srcMemoryType = flat.srcMemoryType;
  full.srcHost = flat.srcHost;
  full.srcDevice = flat.srcDevice;
  full.srcArray = flat.srcArray;
  full.srcPitch = flat.srcPitch;
  full.dstXInBytes = flat.dstXInBytes;
  full.dstY = flat.dstY;
  full.dstMemoryType = flat.dstMemoryType;
  full.dstHost = flat.dstHost;
  full.dstDevice = flat.dstDevice;
  full.dstArray = flat.dstArray;
  full.dstPitch = flat.dstPitch;
  full.WidthInBytes = flat.WidthInBytes;
  full.Height = flat.Height;
  full.Depth = 1;
  return full;
}

// The contexts of a peer copy mean nothing where every device reaches every address.
CUDA_MEMCPY3D from_peer(const CUDA_MEMCPY3D_PEER& peer) {
  CUDA_MEMCPY3D full{};
  full.srcXInBytes = peer.srcXInBytes;
  full.srcY = peer.srcY;
  full.srcZ = peer.srcZ;
  full.srcMemoryType = peer.srcMemoryType;
  full.srcHost = peer.srcHost;
  full.srcDevice = peer.srcDevice;
  full.srcArray = peer.srcArray;
  full.srcPitch = peer.srcPitch;
  full.srcHeight = peer.srcHeight;
  full.dstXInBytes = peer.dstXInBytes;
  full.dstY = peer.dstY;
  full.dstZ = peer.dstZ;
  full.dstMemoryType = peer.dstMemoryType;
  full.dstHost = peer.dstHost;
  full.dstDevice = peer.dstDevice;
  full.dstArray = peer.dstArray;
  full.dstPitch = peer.dstPitch;
  full.dstHeight = peer.dstHeight;
  full.WidthInBytes = peer.WidthInBytes;
  full.Height = peer.Height;
  full.Depth = peer.Depth;
  return full;
}

CUresult copy_shape(const CUDA_MEMCPY3D& description, CUstream stream_handle, CopyCall call) {
  Locked lock = lock_driver();
  CUresult result;
  const StreamPointer stream = find_stream(lock, stream_handle, result);
  if (!stream) return result;
  ShapedCopy shaped;
  if (const CUresult wrong = resolve(lock, description, shaped)) return wrong;
  return copy(lock, stream, shaped, call);
}

// One line of bytes between an array and something else.
struct LineEnd {
  CUmemorytype type;
  const void* host = nullptr;
  CUdeviceptr device = 0;
  CUarray array = nullptr;
  size_t offset = 0;
};

CUresult resolve_line(Locked& lock, const LineEnd& end, size_t bytes, Side& side) {
  const Plane plane{end.type, end.host, end.device, nullptr, bytes, 1};
  if (end.type != CU_MEMORYTYPE_ARRAY) return locate(lock, plane, {0, 0, 0}, {.row_bytes = bytes}, side);
  const Array* array = find_array(lock, end.array);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  // [documented] One-dimensional arrays, by an offset in bytes; here the bytes of the rows follow each other.
  if (end.offset > array->bytes || bytes > array->bytes - end.offset) return CUDA_ERROR_INVALID_VALUE;
  side = {array->address + end.offset, bytes, bytes};
  side.device = array->context->device;
  return CUDA_SUCCESS;
}

CUresult copy_line(const LineEnd& to, const LineEnd& from, size_t bytes, CUstream stream_handle, CopyCall call) {
  Locked lock = lock_driver();
  CUresult result;
  const StreamPointer stream = find_stream(lock, stream_handle, result);
  if (!stream) return result;
  ShapedCopy what{{}, {}, {.row_bytes = bytes}};
  if (const CUresult wrong = resolve_line(lock, to, bytes, what.to)) return wrong;
  if (const CUresult wrong = resolve_line(lock, from, bytes, what.from)) return wrong;
  return copy(lock, stream, what, call);
}

LineEnd in_array(CUarray array, size_t offset) { return {CU_MEMORYTYPE_ARRAY, nullptr, 0, array, offset}; }
LineEnd on_host(const void* memory) { return {CU_MEMORYTYPE_HOST, memory}; }
LineEnd on_device(CUdeviceptr memory) { return {CU_MEMORYTYPE_DEVICE, nullptr, memory}; }

}  // namespace

CUresult resolve(Locked& lock, const CUDA_MEMCPY3D& what, ShapedCopy& answer) {
  answer.shape = {what.WidthInBytes, what.Height, what.Depth};
  if (!what.WidthInBytes || !what.Height || !what.Depth) return CUDA_SUCCESS;
  const Plane from{what.srcMemoryType, what.srcHost, what.srcDevice, what.srcArray, what.srcPitch, what.srcHeight};
  const Plane to{what.dstMemoryType, what.dstHost, what.dstDevice, what.dstArray, what.dstPitch, what.dstHeight};
  if (const CUresult wrong = locate(lock, from, {what.srcXInBytes, what.srcY, what.srcZ}, answer.shape, answer.from))
    return wrong;
  return locate(lock, to, {what.dstXInBytes, what.dstY, what.dstZ}, answer.shape, answer.to);
}

}  // namespace simcuda

using namespace simcuda;

#define SIMCUDA_SHAPED_COPY(name, Description, convert)                        \
  extern "C" CUresult name(const Description* description) {                   \
    SIMCUDA_CALL(kOrdinary);                                                   \
    if (!description) return CUDA_ERROR_INVALID_VALUE;                         \
    return copy_shape(convert(*description), nullptr, CopyCall::kSynchronous); \
  }                                                                            \
  SIMCUDA_PER_THREAD_STREAM(name, _ptds, (const Description* description), (description))

#define SIMCUDA_SHAPED_COPY_ASYNC(name, Description, convert)                  \
  extern "C" CUresult name(const Description* description, CUstream stream) {  \
    SIMCUDA_CALL(kOrdinary);                                                   \
    if (!description) return CUDA_ERROR_INVALID_VALUE;                         \
    return copy_shape(convert(*description), stream, CopyCall::kAsynchronous); \
  }                                                                            \
  SIMCUDA_PER_THREAD_STREAM(name, _ptsz, (const Description* description, CUstream stream), (description, stream))

SIMCUDA_SHAPED_COPY(cuMemcpy2D_v2, CUDA_MEMCPY2D, from_2d)
SIMCUDA_SHAPED_COPY(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, from_2d)
SIMCUDA_SHAPED_COPY(cuMemcpy3D_v2, CUDA_MEMCPY3D, )
SIMCUDA_SHAPED_COPY(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER, from_peer)
SIMCUDA_SHAPED_COPY_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, from_2d)
SIMCUDA_SHAPED_COPY_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, )
SIMCUDA_SHAPED_COPY_ASYNC(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER, from_peer)

extern "C" CUresult cuMemcpyHtoA_v2(CUarray to, size_t offset, const void* from, size_t bytes) {
  SIMCUDA_CALL(kOrdinary);
  return copy_line(in_array(to, offset), on_host(from), bytes, nullptr, CopyCall::kSynchronous);
}
SIMCUDA_PER_THREAD_STREAM(cuMemcpyHtoA_v2, _ptds, (CUarray to, size_t offset, const void* from, size_t bytes),
                          (to, offset, from, bytes))

extern "C" CUresult cuMemcpyAtoH_v2(void* to, CUarray from, size_t offset, size_t bytes) {
  SIMCUDA_CALL(kOrdinary);
  return copy_line(on_host(to), in_array(from, offset), bytes, nullptr, CopyCall::kSynchronous);
}
SIMCUDA_PER_THREAD_STREAM(cuMemcpyAtoH_v2, _ptds, (void* to, CUarray from, size_t offset, size_t bytes),
                          (to, from, offset, bytes))

extern "C" CUresult cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void* from, size_t bytes, CUstream stream) {
  SIMCUDA_CALL(kOrdinary);
  return copy_line(in_array(to, offset), on_host(from), bytes, stream, CopyCall::kAsynchronous);
}
SIMCUDA_PER_THREAD_STREAM(cuMemcpyHtoAAsync_v2, _ptsz,
                          (CUarray to, size_t offset, const void* from, size_t bytes, CUstream stream),
                          (to, offset, from, bytes, stream))

extern "C" CUresult cuMemcpyAtoHAsync_v2(void* to, CUarray from, size_t offset, size_t bytes, CUstream stream) {
  SIMCUDA_CALL(kOrdinary);
  return copy_line(on_host(to), in_array(from, offset), bytes, stream, CopyCall::kAsynchronous);
}
SIMCUDA_PER_THREAD_STREAM(cuMemcpyAtoHAsync_v2, _ptsz,
                          (void* to, CUarray from, size_t offset, size_t bytes, CUstream stream),
                          (to, from, offset, bytes, stream))

extern "C" CUresult cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t bytes) {
  SIMCUDA_CALL(kOrdinary);
  return copy_line(in_array(to, offset), on_device(from), bytes, nullptr, CopyCall::kSynchronous);
}
SIMCUDA_PER_THREAD_STREAM(cuMemcpyDtoA_v2, _ptds, (CUarray to, size_t offset, CUdeviceptr from, size_t bytes),
                          (to, offset, from, bytes))

extern "C" CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t bytes) {
  SIMCUDA_CALL(kOrdinary);
  return copy_line(on_device(to), in_array(from, offset), bytes, nullptr, CopyCall::kSynchronous);
}
SIMCUDA_PER_THREAD_STREAM(cuMemcpyAtoD_v2, _ptds, (CUdeviceptr to, CUarray from, size_t offset, size_t bytes),
                          (to, from, offset, bytes))

extern "C" CUresult cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t bytes) {
  SIMCUDA_CALL(kOrdinary);
  return copy_line(in_array(to, to_offset), in_array(from, from_offset), bytes, nullptr, CopyCall::kSynchronous);
}
SIMCUDA_PER_THREAD_STREAM(cuMemcpyAtoA_v2, _ptds,
                          (CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t bytes),
                          (to, to_offset, from, from_offset, bytes))
