// Memory pools. The structures of both families have the same layout [documented: they are named as twins], so pointers
// to them are passed on.
#include "state.hpp"

using namespace simcuda_runtime;

static_assert(sizeof(cudaMemPoolProps) == sizeof(CUmemPoolProps));
static_assert(sizeof(cudaMemAccessDesc) == sizeof(CUmemAccessDesc));
static_assert(sizeof(cudaMemLocation) == sizeof(CUmemLocation));
static_assert(sizeof(cudaMemPoolPtrExportData) == sizeof(CUmemPoolPtrExportData));

extern "C" {

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  return in_context(
      [&] { return DRIVER(cuMemPoolCreate, 11020)(pool, reinterpret_cast<const CUmemPoolProps*>(properties)); });
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return in_context([&] { return DRIVER(cuMemPoolDestroy, 11020)(pool); });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep_bytes) {
  return in_context([&] { return DRIVER(cuMemPoolTrimTo, 11020)(pool, keep_bytes); });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return in_context(
      [&] { return DRIVER(cuMemPoolSetAttribute, 11020)(pool, static_cast<CUmemPool_attribute>(attribute), value); });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return in_context(
      [&] { return DRIVER(cuMemPoolGetAttribute, 11020)(pool, static_cast<CUmemPool_attribute>(attribute), value); });
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* list, size_t count) {
  return in_context(
      [&] { return DRIVER(cuMemPoolSetAccess, 11020)(pool, reinterpret_cast<const CUmemAccessDesc*>(list), count); });
}

cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t pool, cudaMemLocation* location) {
  return in_context([&] {
    return DRIVER(cuMemPoolGetAccess, 11020)(reinterpret_cast<CUmemAccess_flags*>(flags), pool,
                                             reinterpret_cast<CUmemLocation*>(location));
  });
}

cudaError_t cudaMemPoolExportToShareableHandle(void* handle, cudaMemPool_t pool, cudaMemAllocationHandleType type,
                                               unsigned int flags) {
  return in_context([&] {
    return DRIVER(cuMemPoolExportToShareableHandle, 11020)(handle, pool, static_cast<CUmemAllocationHandleType>(type),
                                                           flags);
  });
}

cudaError_t cudaMemPoolImportFromShareableHandle(cudaMemPool_t* pool, void* handle, cudaMemAllocationHandleType type,
                                                 unsigned int flags) {
  return in_context([&] {
    return DRIVER(cuMemPoolImportFromShareableHandle, 11020)(pool, handle, static_cast<CUmemAllocationHandleType>(type),
                                                             flags);
  });
}

cudaError_t cudaMemPoolExportPointer(cudaMemPoolPtrExportData* data, void* pointer) {
  return in_context([&] {
    return DRIVER(cuMemPoolExportPointer, 11020)(reinterpret_cast<CUmemPoolPtrExportData*>(data), address_of(pointer));
  });
}

cudaError_t cudaMemPoolImportPointer(void** pointer, cudaMemPool_t pool, cudaMemPoolPtrExportData* data) {
  return in_context([&] {
    return DRIVER(cuMemPoolImportPointer, 11020)(reinterpret_cast<CUdeviceptr*>(pointer), pool,
                                                 reinterpret_cast<CUmemPoolPtrExportData*>(data));
  });
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return with_driver([&] { return DRIVER(cuDeviceGetDefaultMemPool, 11020)(pool, device); });
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return with_driver([&] { return DRIVER(cuDeviceGetMemPool, 11020)(pool, device); });
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  return with_driver([&] { return DRIVER(cuDeviceSetMemPool, 11020)(device, pool); });
}

cudaError_t cudaMemGetDefaultMemPool(cudaMemPool_t* pool, cudaMemLocation* location, cudaMemAllocationType type) {
  return with_driver([&] {
    return DRIVER(cuMemGetDefaultMemPool, 13000)(pool, reinterpret_cast<CUmemLocation*>(location),
                                                 static_cast<CUmemAllocationType>(type));
  });
}

cudaError_t cudaMemGetMemPool(cudaMemPool_t* pool, cudaMemLocation* location, cudaMemAllocationType type) {
  return with_driver([&] {
    return DRIVER(cuMemGetMemPool, 13000)(pool, reinterpret_cast<CUmemLocation*>(location),
                                          static_cast<CUmemAllocationType>(type));
  });
}

cudaError_t cudaMemSetMemPool(cudaMemLocation* location, cudaMemAllocationType type, cudaMemPool_t pool) {
  return with_driver([&] {
    return DRIVER(cuMemSetMemPool, 13000)(reinterpret_cast<CUmemLocation*>(location),
                                          static_cast<CUmemAllocationType>(type), pool);
  });
}

}  // extern "C"
