// Copies of rectangles and boxes, between linear memory and arrays, and fills of rectangles and boxes. Each becomes one
// descriptor of the driver's.
#include "../shapes.hpp"
#include "per_stream.hpp"

using namespace simcuda_runtime;

namespace {

cudaError_t copy_plane(const End& to, const End& from, size_t width, size_t height, cudaMemcpyKind kind, bool async,
                       cudaStream_t stream) {
  return in_context([&]() -> cudaError_t {
    if (!kind_is_valid(kind)) return cudaErrorInvalidMemcpyDirection;
    if (width == 0 || height == 0) return cudaSuccess;
    if ((to.pointer && to.pitch < width) || (from.pointer && from.pitch < width)) return cudaErrorInvalidPitchValue;
    CUDA_MEMCPY2D plane = describe_plane(to, from, width, height, kind);
    return to_runtime(async ? DRIVER_ON_STREAM(cuMemcpy2DAsync, 3020, 7000)(&plane, stream)
                            : DRIVER_ON_STREAM(cuMemcpy2DUnaligned, 3020, 7000)(&plane));
  });
}

cudaError_t copy_box(const cudaMemcpy3DParms* box, bool async, cudaStream_t stream) {
  if (!box) return record(cudaErrorInvalidValue);
  return in_context([&]() -> cudaError_t {
    if (!kind_is_valid(box->kind)) return cudaErrorInvalidMemcpyDirection;
    if (box->extent.width == 0 || box->extent.height == 0 || box->extent.depth == 0) return cudaSuccess;
    CUDA_MEMCPY3D shape{};
    if (CUresult result = describe_box(*box, &shape)) return to_runtime(result);
    return to_runtime(async ? DRIVER_ON_STREAM(cuMemcpy3DAsync, 3020, 7000)(&shape, stream)
                            : DRIVER_ON_STREAM(cuMemcpy3D, 3020, 7000)(&shape));
  });
}

CUresult device_context(int device, CUcontext* context) {
  return static_cast<CUresult>(primary_context(device, context));
}

cudaError_t copy_box_between_devices(const cudaMemcpy3DPeerParms* box, bool async, cudaStream_t stream) {
  if (!box) return record(cudaErrorInvalidValue);
  return in_context([&]() -> CUresult {
    CUDA_MEMCPY3D shape{};
    cudaMemcpy3DParms ends{box->srcArray, box->srcPos, box->srcPtr, box->dstArray,
                           box->dstPos,   box->dstPtr, box->extent, cudaMemcpyDeviceToDevice};
    if (CUresult result = describe_box(ends, &shape)) return result;
    CUDA_MEMCPY3D_PEER peer{};
    peer.srcXInBytes = shape.srcXInBytes, peer.srcY = shape.srcY, peer.srcZ = shape.srcZ;
    peer.srcMemoryType = shape.srcMemoryType, peer.srcDevice = shape.srcDevice, peer.srcArray = shape.srcArray;
    peer.srcPitch = shape.srcPitch, peer.srcHeight = shape.srcHeight;
    peer.dstXInBytes = shape.dstXInBytes, peer.dstY = shape.dstY, peer.dstZ = shape.dstZ;
    peer.dstMemoryType = shape.dstMemoryType, peer.dstDevice = shape.dstDevice, peer.dstArray = shape.dstArray;
    peer.dstPitch = shape.dstPitch, peer.dstHeight = shape.dstHeight;
    peer.WidthInBytes = shape.WidthInBytes, peer.Height = shape.Height, peer.Depth = shape.Depth;
    if (CUresult result = device_context(box->srcDevice, &peer.srcContext)) return result;
    if (CUresult result = device_context(box->dstDevice, &peer.dstContext)) return result;
    return async ? DRIVER_ON_STREAM(cuMemcpy3DPeerAsync, 4000, 7000)(&peer, stream)
                 : DRIVER_ON_STREAM(cuMemcpy3DPeer, 4000, 7000)(&peer);
  });
}

struct Rows {
  void* pointer;
  size_t pitch;
  size_t width;
  size_t height;
};

CUresult fill_rows(const Rows& rows, int value, bool async, cudaStream_t stream) {
  auto byte = static_cast<unsigned char>(value);
  CUdeviceptr address = address_of(rows.pointer);
  if (async)
    return DRIVER_ON_STREAM(cuMemsetD2D8Async, 3020, 7000)(address, rows.pitch, byte, rows.width, rows.height, stream);
  return DRIVER_ON_STREAM(cuMemsetD2D8, 3020, 7000)(address, rows.pitch, byte, rows.width, rows.height);
}

cudaError_t fill_plane(const Rows& rows, int value, bool async, cudaStream_t stream) {
  return in_context([&]() -> CUresult {
    if (rows.width == 0 || rows.height == 0) return CUDA_SUCCESS;
    return fill_rows(rows, value, async, stream);
  });
}

// A box is filled slice by slice, as one rectangle where the slices touch [assumed].
cudaError_t fill_box(const cudaPitchedPtr& box, int value, cudaExtent extent, bool async, cudaStream_t stream) {
  return in_context([&]() -> CUresult {
    if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return CUDA_SUCCESS;
    if (extent.height == box.ysize)
      return fill_rows({box.ptr, box.pitch, extent.width, extent.height * extent.depth}, value, async, stream);
    for (size_t slice = 0; slice < extent.depth; ++slice) {
      char* start = static_cast<char*>(box.ptr) + slice * box.pitch * box.ysize;
      if (CUresult result = fill_rows({start, box.pitch, extent.width, extent.height}, value, async, stream))
        return result;
    }
    return CUDA_SUCCESS;
  });
}

End linear(const void* pointer, size_t pitch) { return {.pointer = pointer, .pitch = pitch}; }
End in_array(cudaArray_const_t array, size_t x, size_t y) { return {.array = array, .x = x, .y = y}; }

}  // namespace

extern "C" {

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                         cudaMemcpyKind kind) {
  return copy_plane(linear(to, to_pitch), linear(from, from_pitch), width, height, kind, false, nullptr);
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy_plane(linear(to, to_pitch), linear(from, from_pitch), width, height, kind, true, stream);
}

cudaError_t cudaMemcpy2DToArray(cudaArray_t to, size_t x, size_t y, const void* from, size_t from_pitch, size_t width,
                                size_t height, cudaMemcpyKind kind) {
  return copy_plane(in_array(to, x, y), linear(from, from_pitch), width, height, kind, false, nullptr);
}

cudaError_t cudaMemcpy2DToArrayAsync(cudaArray_t to, size_t x, size_t y, const void* from, size_t from_pitch,
                                     size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy_plane(in_array(to, x, y), linear(from, from_pitch), width, height, kind, true, stream);
}

cudaError_t cudaMemcpy2DFromArray(void* to, size_t to_pitch, cudaArray_const_t from, size_t x, size_t y, size_t width,
                                  size_t height, cudaMemcpyKind kind) {
  return copy_plane(linear(to, to_pitch), in_array(from, x, y), width, height, kind, false, nullptr);
}

cudaError_t cudaMemcpy2DFromArrayAsync(void* to, size_t to_pitch, cudaArray_const_t from, size_t x, size_t y,
                                       size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy_plane(linear(to, to_pitch), in_array(from, x, y), width, height, kind, true, stream);
}

cudaError_t cudaMemcpy2DArrayToArray(cudaArray_t to, size_t to_x, size_t to_y, cudaArray_const_t from, size_t from_x,
                                     size_t from_y, size_t width, size_t height, cudaMemcpyKind kind) {
  return copy_plane(in_array(to, to_x, to_y), in_array(from, from_x, from_y), width, height, kind, false, nullptr);
}

cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* box) { return copy_box(box, false, nullptr); }

cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* box, cudaStream_t stream) { return copy_box(box, true, stream); }

cudaError_t cudaMemcpy3DPeer(const cudaMemcpy3DPeerParms* box) { return copy_box_between_devices(box, false, nullptr); }

cudaError_t cudaMemcpy3DPeerAsync(const cudaMemcpy3DPeerParms* box, cudaStream_t stream) {
  return copy_box_between_devices(box, true, stream);
}

cudaError_t cudaMemset2D(void* pointer, size_t pitch, int value, size_t width, size_t height) {
  return fill_plane({pointer, pitch, width, height}, value, false, nullptr);
}

cudaError_t cudaMemset2DAsync(void* pointer, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  return fill_plane({pointer, pitch, width, height}, value, true, stream);
}

cudaError_t cudaMemset3D(cudaPitchedPtr box, int value, cudaExtent extent) {
  return fill_box(box, value, extent, false, nullptr);
}

cudaError_t cudaMemset3DAsync(cudaPitchedPtr box, int value, cudaExtent extent, cudaStream_t stream) {
  return fill_box(box, value, extent, true, stream);
}

}  // extern "C"
