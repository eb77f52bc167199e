// Arrays and mipmapped arrays, and how a channel description becomes a driver format.
#include "arrays.hpp"

#include "state.hpp"

namespace simcuda_runtime {

namespace {

CUarray_format format_of(cudaChannelFormatKind kind, int bits) {
  switch (kind) {
    case cudaChannelFormatKindSigned:
      return bits == 8 ? CU_AD_FORMAT_SIGNED_INT8 : bits == 16 ? CU_AD_FORMAT_SIGNED_INT16 : CU_AD_FORMAT_SIGNED_INT32;
    case cudaChannelFormatKindFloat:
      return bits == 16 ? CU_AD_FORMAT_HALF : CU_AD_FORMAT_FLOAT;
    default:
      return bits == 8    ? CU_AD_FORMAT_UNSIGNED_INT8
             : bits == 16 ? CU_AD_FORMAT_UNSIGNED_INT16
                          : CU_AD_FORMAT_UNSIGNED_INT32;
  }
}

int bits_of(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 8;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 16;
    default:
      return 32;
  }
}

cudaChannelFormatKind kind_of(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_SIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT32:
      return cudaChannelFormatKindSigned;
    case CU_AD_FORMAT_HALF:
    case CU_AD_FORMAT_FLOAT:
      return cudaChannelFormatKindFloat;
    default:
      return cudaChannelFormatKindUnsigned;
  }
}

// Channels are counted up to the first without bits; all have the same width and only the plain kinds with 8, 16 or 32
// bits are simulated [documented for cudaMallocArray].
bool describe(const cudaChannelFormatDesc* channels, cudaExtent extent, unsigned flags,
              CUDA_ARRAY3D_DESCRIPTOR* description) {
  if (!channels || (channels->x != 8 && channels->x != 16 && channels->x != 32)) return false;
  if (channels->f > cudaChannelFormatKindFloat) return false;
  unsigned count = 1 + (channels->y > 0) + (channels->z > 0) + (channels->w > 0);
  if (count == 3) return false;  // [documented: 1, 2 or 4]
  *description = {extent.width, extent.height, extent.depth, format_of(channels->f, channels->x), count, flags};
  return true;
}

}  // namespace

CUresult element_bytes(CUarray array, size_t* bytes) {
  CUDA_ARRAY3D_DESCRIPTOR description{};
  CUresult result = DRIVER(cuArray3DGetDescriptor, 3020)(&description, array);
  *bytes = static_cast<size_t>(bits_of(description.Format)) / 8 * description.NumChannels;
  return result;
}

}  // namespace simcuda_runtime

using namespace simcuda_runtime;

namespace {

cudaError_t info_of(cudaChannelFormatDesc* channels, cudaExtent* extent, unsigned* flags, cudaArray_const_t array) {
  return in_context([&]() -> CUresult {
    CUDA_ARRAY3D_DESCRIPTOR description{};
    if (CUresult result = DRIVER(cuArray3DGetDescriptor, 3020)(&description, driver_array(array))) return result;
    int bits = bits_of(description.Format);
    unsigned count = description.NumChannels;
    if (channels)
      *channels = {bits, count > 1 ? bits : 0, count > 2 ? bits : 0, count > 3 ? bits : 0, kind_of(description.Format)};
    if (extent) *extent = {description.Width, description.Height, description.Depth};
    if (flags) *flags = description.Flags;
    return CUDA_SUCCESS;
  });
}

}  // namespace

extern "C" {

cudaError_t cudaMallocArray(cudaArray_t* array, const cudaChannelFormatDesc* channels, size_t width, size_t height,
                            unsigned int flags) {
  CUDA_ARRAY3D_DESCRIPTOR description{};
  if (!array || !describe(channels, {width, height, 0}, flags, &description)) return record(cudaErrorInvalidValue);
  return in_context([&]() -> CUresult {
    auto* created = reinterpret_cast<CUarray*>(array);
    if (flags) return DRIVER(cuArray3DCreate, 3020)(created, &description);
    CUDA_ARRAY_DESCRIPTOR plain{width, height, description.Format, description.NumChannels};
    return DRIVER(cuArrayCreate, 3020)(created, &plain);
  });
}

cudaError_t cudaMalloc3DArray(cudaArray_t* array, const cudaChannelFormatDesc* channels, cudaExtent extent,
                              unsigned int flags) {
  CUDA_ARRAY3D_DESCRIPTOR description{};
  if (!array || !describe(channels, extent, flags, &description)) return record(cudaErrorInvalidValue);
  return in_context([&] { return DRIVER(cuArray3DCreate, 3020)(reinterpret_cast<CUarray*>(array), &description); });
}

cudaError_t cudaFreeArray(cudaArray_t array) {
  return in_context([&] { return array ? DRIVER(cuArrayDestroy, 2000)(driver_array(array)) : CUDA_SUCCESS; });
}

cudaError_t cudaMallocMipmappedArray(cudaMipmappedArray_t* mipmap, const cudaChannelFormatDesc* channels,
                                     cudaExtent extent, unsigned int levels, unsigned int flags) {
  CUDA_ARRAY3D_DESCRIPTOR description{};
  if (!mipmap || !describe(channels, extent, flags, &description)) return record(cudaErrorInvalidValue);
  return in_context([&] {
    return DRIVER(cuMipmappedArrayCreate, 5000)(reinterpret_cast<CUmipmappedArray*>(mipmap), &description, levels);
  });
}

cudaError_t cudaFreeMipmappedArray(cudaMipmappedArray_t mipmap) {
  return in_context([&] {
    return mipmap ? DRIVER(cuMipmappedArrayDestroy, 5000)(reinterpret_cast<CUmipmappedArray>(mipmap)) : CUDA_SUCCESS;
  });
}

cudaError_t cudaGetMipmappedArrayLevel(cudaArray_t* array, cudaMipmappedArray_const_t mipmap, unsigned int level) {
  auto driver_mipmap = reinterpret_cast<CUmipmappedArray>(const_cast<cudaMipmappedArray*>(mipmap));
  return in_context(
      [&] { return DRIVER(cuMipmappedArrayGetLevel, 5000)(reinterpret_cast<CUarray*>(array), driver_mipmap, level); });
}

cudaError_t cudaArrayGetInfo(cudaChannelFormatDesc* channels, cudaExtent* extent, unsigned int* flags,
                             cudaArray_t array) {
  return info_of(channels, extent, flags, array);
}

cudaError_t cudaGetChannelDesc(cudaChannelFormatDesc* channels, cudaArray_const_t array) {
  return info_of(channels, nullptr, nullptr, array);
}

cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind kind) {
  return {x, y, z, w, kind};
}

}  // extern "C"
