// Memory in the order of a stream, and where managed memory lies.
#include <string.h>

#include "per_stream.hpp"

using namespace simcuda_runtime;

extern "C" {

cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
  if (!pointer) return record(cudaErrorInvalidValue);
  return in_context([&]() -> CUresult {
    *pointer = nullptr;
    if (bytes == 0) return CUDA_SUCCESS;  // [assumed: as cudaMalloc(0)]
    CUdeviceptr address = 0;
    CUresult result = DRIVER_ON_STREAM(cuMemAllocAsync, 11020, 11020)(&address, bytes, stream);
    if (result == CUDA_SUCCESS) *pointer = pointer_of(address);
    return result;
  });
}

cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  if (!pointer) return record(cudaErrorInvalidValue);
  return in_context([&]() -> CUresult {
    *pointer = nullptr;
    if (bytes == 0) return CUDA_SUCCESS;  // [assumed: as cudaMalloc(0)]
    CUdeviceptr address = 0;
    CUresult result = DRIVER_ON_STREAM(cuMemAllocFromPoolAsync, 11020, 11020)(&address, bytes, pool, stream);
    if (result == CUDA_SUCCESS) *pointer = pointer_of(address);
    return result;
  });
}

// Takes the memory of cudaMalloc too [documented].
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return in_context([&] {
    if (!pointer) return CUDA_SUCCESS;  // [assumed: as cudaFree(NULL)]
    return DRIVER_ON_STREAM(cuMemFreeAsync, 11020, 11020)(address_of(pointer), stream);
  });
}

cudaError_t cudaMemPrefetchAsync(const void* pointer, size_t bytes, cudaMemLocation location, unsigned int flags,
                                 cudaStream_t stream) {
  CUmemLocation where;
  static_assert(sizeof where == sizeof location);
  memcpy(&where, &location, sizeof where);
  return in_context([&] {
    return DRIVER_ON_STREAM(cuMemPrefetchAsync, 12020, 12020)(address_of(pointer), bytes, where, flags, stream);
  });
}

cudaError_t cudaStreamAttachMemAsync(cudaStream_t stream, void* pointer, size_t bytes, unsigned int flags) {
  return in_context(
      [&] { return DRIVER_ON_STREAM(cuStreamAttachMemAsync, 6000, 7000)(stream, address_of(pointer), bytes, flags); });
}

}  // extern "C"
