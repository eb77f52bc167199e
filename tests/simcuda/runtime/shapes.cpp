// How rectangles and boxes become descriptors of the driver's.
#include "shapes.hpp"

#include "arrays.hpp"
#include "state.hpp"

namespace simcuda_runtime {
namespace {

CUmemorytype type_of(const End& end, bool is_host, cudaMemcpyKind kind) {
  if (end.array) return CU_MEMORYTYPE_ARRAY;
  if (kind == cudaMemcpyDefault) return CU_MEMORYTYPE_UNIFIED;
  return is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

// How many bytes an element of the copy has: the array's, or one when there is no array [documented]. With two arrays
// they must agree [documented].
CUresult unit_of(const End& to, const End& from, size_t* bytes) {
  *bytes = 1;
  cudaArray_const_t array = from.array ? from.array : to.array;
  return array ? element_bytes(driver_array(array), bytes) : CUDA_SUCCESS;
}

CUDA_MEMCPY3D describe(const End& to, const End& from, size_t unit, cudaExtent extent, cudaMemcpyKind kind) {
  CUDA_MEMCPY3D shape{};
  shape.srcXInBytes = from.array ? from.x * unit : from.x;
  shape.srcY = from.y;
  shape.srcZ = from.z;
  shape.srcMemoryType = type_of(from, kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice, kind);
  shape.srcHost = from.pointer;
  shape.srcDevice = address_of(from.pointer);
  shape.srcArray = driver_array(from.array);
  shape.srcPitch = from.pitch;
  shape.srcHeight = from.rows;
  shape.dstXInBytes = to.array ? to.x * unit : to.x;
  shape.dstY = to.y;
  shape.dstZ = to.z;
  shape.dstMemoryType = type_of(to, kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost, kind);
  shape.dstHost = const_cast<void*>(to.pointer);
  shape.dstDevice = address_of(to.pointer);
  shape.dstArray = driver_array(to.array);
  shape.dstPitch = to.pitch;
  shape.dstHeight = to.rows;
  shape.WidthInBytes = extent.width * unit;
  shape.Height = extent.height;
  shape.Depth = extent.depth;
  return shape;
}

End end_of(cudaArray_const_t array, const cudaPos& position, const cudaPitchedPtr& linear) {
  return {array, linear.ptr, linear.pitch, linear.ysize, position.x, position.y, position.z};
}

}  // namespace

CUresult describe_box(const cudaMemcpy3DParms& box, CUDA_MEMCPY3D* shape) {
  End to = end_of(box.dstArray, box.dstPos, box.dstPtr), from = end_of(box.srcArray, box.srcPos, box.srcPtr);
  size_t unit = 1;
  if (CUresult result = unit_of(to, from, &unit)) return result;
  *shape = describe(to, from, unit, box.extent, box.kind);
  return CUDA_SUCCESS;
}

CUDA_MEMCPY2D describe_plane(const End& to, const End& from, size_t width, size_t height, cudaMemcpyKind kind) {
  CUDA_MEMCPY3D shape = describe(to, from, 1, {width, height, 1}, kind);
  CUDA_MEMCPY2D plane{};
  plane.srcXInBytes = shape.srcXInBytes;
  plane.srcY = shape.srcY;
  plane.srcMemoryType = shape.srcMemoryType;
  plane.srcHost = shape.srcHost;
  plane.srcDevice = shape.srcDevice;
  plane.srcArray = shape.srcArray;
  plane.srcPitch = shape.srcPitch;
  plane.dstXInBytes = shape.dstXInBytes;
  plane.dstY = shape.dstY;
  plane.dstMemoryType = shape.dstMemoryType;
  plane.dstHost = shape.dstHost;
  plane.dstDevice = shape.dstDevice;
  plane.dstArray = shape.dstArray;
  plane.dstPitch = shape.dstPitch;
  plane.WidthInBytes = shape.WidthInBytes;
  plane.Height = shape.Height;
  return plane;
}

}  // namespace simcuda_runtime
