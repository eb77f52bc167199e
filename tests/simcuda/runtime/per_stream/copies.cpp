// Linear copies and fills.
#include "per_stream.hpp"

using namespace simcuda_runtime;

namespace {

// A kind that names its ends has its own driver function; host to host and "default" leave it to the addresses
// [assumed for host to host].
cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return to_runtime(DRIVER_ON_STREAM(cuMemcpyHtoD, 3020, 7000)(address_of(to), from, bytes));
    case cudaMemcpyDeviceToHost:
      return to_runtime(DRIVER_ON_STREAM(cuMemcpyDtoH, 3020, 7000)(to, address_of(from), bytes));
    case cudaMemcpyDeviceToDevice:
      return to_runtime(DRIVER_ON_STREAM(cuMemcpyDtoD, 3020, 7000)(address_of(to), address_of(from), bytes));
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return to_runtime(DRIVER_ON_STREAM(cuMemcpy, 4000, 7000)(address_of(to), address_of(from), bytes));
  }
  return cudaErrorInvalidMemcpyDirection;
}

cudaError_t copy_async(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return to_runtime(DRIVER_ON_STREAM(cuMemcpyHtoDAsync, 3020, 7000)(address_of(to), from, bytes, stream));
    case cudaMemcpyDeviceToHost:
      return to_runtime(DRIVER_ON_STREAM(cuMemcpyDtoHAsync, 3020, 7000)(to, address_of(from), bytes, stream));
    case cudaMemcpyDeviceToDevice:
      return to_runtime(
          DRIVER_ON_STREAM(cuMemcpyDtoDAsync, 3020, 7000)(address_of(to), address_of(from), bytes, stream));
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return to_runtime(DRIVER_ON_STREAM(cuMemcpyAsync, 4000, 7000)(address_of(to), address_of(from), bytes, stream));
  }
  return cudaErrorInvalidMemcpyDirection;
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return in_context([&] { return bytes ? copy(to, from, bytes, kind) : cudaSuccess; });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return in_context([&] { return bytes ? copy_async(to, from, bytes, kind, stream) : cudaSuccess; });
}

// The attributes of both families have the same layout [documented: they are named as twins].
cudaError_t cudaMemcpyBatchAsync(void* const* to, const void* const* from, const size_t* bytes, size_t count,
                                 cudaMemcpyAttributes* attributes, size_t* attribute_indices, size_t attribute_count,
                                 cudaStream_t stream) {
  static_assert(sizeof(cudaMemcpyAttributes) == sizeof(CUmemcpyAttributes));
  auto* destinations = reinterpret_cast<CUdeviceptr*>(const_cast<void**>(to));
  auto* sources = reinterpret_cast<CUdeviceptr*>(const_cast<void**>(const_cast<void const**>(from)));
  return in_context([&] {
    return DRIVER_ON_STREAM(cuMemcpyBatchAsync, 13000, 13000)(destinations, sources, const_cast<size_t*>(bytes), count,
                                                              reinterpret_cast<CUmemcpyAttributes*>(attributes),
                                                              attribute_indices, attribute_count, stream);
  });
}

cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
  return in_context([&] {
    if (bytes == 0) return CUDA_SUCCESS;
    return DRIVER_ON_STREAM(cuMemsetD8, 3020, 7000)(address_of(pointer), static_cast<unsigned char>(value), bytes);
  });
}

cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t stream) {
  return in_context([&] {
    if (bytes == 0) return CUDA_SUCCESS;
    return DRIVER_ON_STREAM(cuMemsetD8Async, 3020, 7000)(address_of(pointer), static_cast<unsigned char>(value), bytes,
                                                         stream);
  });
}

}  // extern "C"
