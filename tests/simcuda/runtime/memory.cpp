// Device, pinned and managed memory, and what is asked about it. Allocations on a stream: per_stream/allocations.cpp.
#include <string.h>

#include "state.hpp"

using namespace simcuda_runtime;

namespace {

// The size of an element in cuMemAllocPitch: rows are aligned for the widest access up to it [assumed: 4].
constexpr unsigned kPitchElementBytes = 4;

cudaError_t allocate_pitched(void** pointer, size_t* pitch, size_t width, size_t rows) {
  *pointer = nullptr;
  *pitch = 0;
  if (width == 0 || rows == 0) return cudaSuccess;  // as cudaMalloc(0) [measured]
  CUdeviceptr address = 0;
  CUresult result = DRIVER(cuMemAllocPitch, 3020)(&address, pitch, width, rows, kPitchElementBytes);
  if (result == CUDA_SUCCESS) *pointer = pointer_of(address);
  return to_runtime(result);
}

cudaError_t allocate_pinned(void** pointer, size_t bytes, unsigned flags) {
  if (!pointer) return record(cudaErrorInvalidValue);
  return in_context([&]() -> CUresult {
    *pointer = nullptr;
    if (bytes == 0) return CUDA_SUCCESS;  // as cudaMalloc(0) [measured]
    return DRIVER(cuMemHostAlloc, 2020)(pointer, bytes, flags);
  });
}

cudaMemoryType memory_type(unsigned driver_type, bool is_managed) {
  if (is_managed) return cudaMemoryTypeManaged;
  if (driver_type == CU_MEMORYTYPE_HOST) return cudaMemoryTypeHost;
  if (driver_type == CU_MEMORYTYPE_DEVICE) return cudaMemoryTypeDevice;
  return cudaMemoryTypeUnregistered;
}

// One query for all that the answer needs [assumed]; the driver answers zeros for memory that it does not know
// [documented], which is success here since 11.0 [documented].
CUresult attributes_of(const void* pointer, cudaPointerAttributes* attributes) {
  unsigned type = 0, is_managed = 0;
  CUdeviceptr device_address = 0;
  void* host_address = nullptr;
  int device = 0;
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                 CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* values[] = {&type, &device_address, &host_address, &is_managed, &device};
  memset(attributes, 0, sizeof *attributes);
  if (CUresult result = DRIVER(cuPointerGetAttributes, 7000)(5u, names, values, address_of(pointer))) return result;
  attributes->type = memory_type(type, is_managed);
  bool known = attributes->type != cudaMemoryTypeUnregistered;
  attributes->device = known ? device : cudaInvalidDeviceId;
  attributes->devicePointer = known ? pointer_of(device_address) : nullptr;
  attributes->hostPointer = known ? host_address : const_cast<void*>(pointer);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

// No bytes: success and no memory, without asking the driver for any [documented].
cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  if (!pointer) return record(cudaErrorInvalidValue);
  return in_context([&]() -> CUresult {
    *pointer = nullptr;
    if (bytes == 0) return CUDA_SUCCESS;
    CUdeviceptr address = 0;
    CUresult result = DRIVER(cuMemAlloc, 3020)(&address, bytes);
    if (result == CUDA_SUCCESS) *pointer = pointer_of(address);
    return result;
  });
}

cudaError_t cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
  if (!pointer || !pitch) return record(cudaErrorInvalidValue);
  return in_context([&] { return allocate_pitched(pointer, pitch, width, height); });
}

cudaError_t cudaMalloc3D(cudaPitchedPtr* pitched, cudaExtent extent) {
  if (!pitched) return record(cudaErrorInvalidValue);
  return in_context([&]() -> cudaError_t {
    pitched->xsize = extent.width;
    pitched->ysize = extent.height;
    return allocate_pitched(&pitched->ptr, &pitched->pitch, extent.width, extent.height * extent.depth);
  });
}

// NULL only starts the runtime [documented], but is answered as a free: a sticky error, a refusal while a stream
// captures [measured]; that the driver is asked is [assumed]. Managed, stream-ordered and pool memory is freed here too
// [documented].
cudaError_t cudaFree(void* pointer) {
  return in_context([&] { return DRIVER(cuMemFree, 3020)(address_of(pointer)); });
}

cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned int flags) {
  if (!pointer) return record(cudaErrorInvalidValue);
  return in_context([&]() -> CUresult {
    if (bytes == 0) return *pointer = nullptr, CUDA_SUCCESS;  // success [measured]; no memory [assumed]
    CUdeviceptr address = 0;
    CUresult result = DRIVER(cuMemAllocManaged, 6000)(&address, bytes, flags);
    if (result == CUDA_SUCCESS) *pointer = pointer_of(address);
    return result;
  });
}

// Both ask cuMemHostAlloc, never cuMemAllocHost, which is not even looked up [measured].
cudaError_t cudaMallocHost(void** pointer, size_t bytes) { return allocate_pinned(pointer, bytes, 0); }

// The flags have the same values in both families [documented].
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned int flags) {
  return allocate_pinned(pointer, bytes, flags);
}

cudaError_t cudaFreeHost(void* pointer) {
  return in_context([&] { return pointer ? DRIVER(cuMemFreeHost, 2000)(pointer) : CUDA_SUCCESS; });  // [assumed: NULL]
}

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned int flags) {
  return in_context([&] { return DRIVER(cuMemHostRegister, 6050)(pointer, bytes, flags); });
}

cudaError_t cudaHostUnregister(void* pointer) {
  return in_context([&] { return DRIVER(cuMemHostUnregister, 4000)(pointer); });
}

cudaError_t cudaHostGetDevicePointer(void** device_pointer, void* host_pointer, unsigned int flags) {
  if (!device_pointer) return record(cudaErrorInvalidValue);
  return in_context([&]() -> CUresult {
    CUdeviceptr address = 0;
    CUresult result = DRIVER(cuMemHostGetDevicePointer, 3020)(&address, host_pointer, flags);
    if (result == CUDA_SUCCESS) *device_pointer = pointer_of(address);
    return result;
  });
}

cudaError_t cudaHostGetFlags(unsigned int* flags, void* pointer) {
  return in_context([&] { return DRIVER(cuMemHostGetFlags, 2030)(flags, pointer); });
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return in_context([&] { return DRIVER(cuMemGetInfo, 3020)(free_bytes, total_bytes); });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  if (!attributes) return record(cudaErrorInvalidValue);
  return in_context([&] { return attributes_of(pointer, attributes); });
}

cudaError_t cudaMemAdvise(const void* pointer, size_t bytes, cudaMemoryAdvise advice, cudaMemLocation location) {
  CUmemLocation where;
  static_assert(sizeof where == sizeof location);
  memcpy(&where, &location, sizeof where);
  return in_context(
      [&] { return DRIVER(cuMemAdvise, 12020)(address_of(pointer), bytes, static_cast<CUmem_advise>(advice), where); });
}

cudaError_t cudaMemRangeGetAttribute(void* data, size_t data_bytes, cudaMemRangeAttribute attribute,
                                     const void* pointer, size_t bytes) {
  return in_context([&] {
    return DRIVER(cuMemRangeGetAttribute, 8000)(data, data_bytes, static_cast<CUmem_range_attribute>(attribute),
                                                address_of(pointer), bytes);
  });
}

cudaError_t cudaMemRangeGetAttributes(void** data, size_t* data_bytes, cudaMemRangeAttribute* attributes, size_t count,
                                      const void* pointer, size_t bytes) {
  return in_context([&] {
    return DRIVER(cuMemRangeGetAttributes, 8000)(data, data_bytes, reinterpret_cast<CUmem_range_attribute*>(attributes),
                                                 count, address_of(pointer), bytes);
  });
}

}  // extern "C"
