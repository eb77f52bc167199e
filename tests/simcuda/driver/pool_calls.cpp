// cuMemPool*: make, destroy, trim, attributes, access; and each device's default and current pool.
#include <algorithm>
#include <memory>

#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/pool_table.hpp"

namespace simcuda {
namespace {

// A destroyed pool stays as long as memory of it is alive [documented]; here it is never deleted.
std::vector<MemoryPool*>& pools() {
  static auto& all = *new std::vector<MemoryPool*>;
  return all;
}

CUmemoryPool handle_of(MemoryPool* pool) { return reinterpret_cast<CUmemoryPool>(pool); }

struct NumberAttribute {
  CUmemPool_attribute attribute;
  cuuint64_t MemoryPool::*field;
  bool settable;  // beyond the release threshold only the high-water marks, and these to zero [documented]
};

constexpr NumberAttribute kNumbers[] = {
    {CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &MemoryPool::release_threshold, true},
    {CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &MemoryPool::reserved, false},
    {CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &MemoryPool::reserved_high, true},
    {CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &MemoryPool::used, false},
    {CU_MEMPOOL_ATTR_USED_MEM_HIGH, &MemoryPool::used_high, true},
};

int* flag_of(MemoryPool& pool, CUmemPool_attribute attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      return &pool.follow_event_dependencies;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      return &pool.opportunistic;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return &pool.internal_dependencies;
    default:
      return nullptr;
  }
}

CUresult set_attribute(MemoryPool& pool, CUmemPool_attribute attribute, const void* value) {
  if (int* flag = flag_of(pool, attribute)) {
    *flag = *static_cast<const int*>(value);
    return CUDA_SUCCESS;
  }
  for (const NumberAttribute& row : kNumbers) {
    if (row.attribute != attribute) continue;
    const cuuint64_t number = *static_cast<const cuuint64_t*>(value);
    const bool high_mark = attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    if (!row.settable || (high_mark && number)) return CUDA_ERROR_INVALID_VALUE;
    pool.*row.field = number;
    if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) pool.reserved_high = pool.reserved;
    if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) pool.used_high = pool.used;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult get_attribute(MemoryPool& pool, CUmemPool_attribute attribute, void* value) {
  if (const int* flag = flag_of(pool, attribute)) {
    *static_cast<int*>(value) = *flag;
    return CUDA_SUCCESS;
  }
  for (const NumberAttribute& row : kNumbers) {
    if (row.attribute != attribute) continue;
    *static_cast<cuuint64_t*>(value) = pool.*row.field;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

MemoryPool* make_pool(Locked&, Device& device) {
  auto* pool = new MemoryPool;
  pool->device = &device;
  pools().push_back(pool);
  return pool;
}

CUresult give_handle(CUmemoryPool* handle, MemoryPool* pool) {
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  *handle = handle_of(pool);
  return CUDA_SUCCESS;
}

}  // namespace

MemoryPool* make_default_pool(Locked& lock, Device& device) {
  MemoryPool* pool = make_pool(lock, device);
  pool->is_default = true;
  return pool;
}

std::vector<MemoryPool*> all_pools(Locked&) { return pools(); }

MemoryPool* find_pool(CUmemoryPool handle) {
  Locked lock = lock_driver();
  for (MemoryPool* pool : pools())
    if (handle_of(pool) == handle) return pool;
  return nullptr;
}

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuMemPoolCreate(CUmemoryPool* handle, const CUmemPoolProps* properties) {
  SIMCUDA_CALL(kContextless);
  if (!handle || !properties || properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return refuse("cuMemPoolCreate outside of a device");
  if (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE) return refuse("cuMemPoolCreate with a shareable handle");
  Device* device = find_device(properties->location.id);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  Locked lock = lock_driver();
  return give_handle(handle, make_pool(lock, *device));
}

// [documented] The default pool cannot be destroyed; the current pool of a device falls back to the default one.
extern "C" CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  SIMCUDA_CALL(kContextless);
  MemoryPool* pool = find_pool(handle);
  if (!pool || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  if (pool->device->pool == pool) pool->device->pool = pool->device->default_pool;
  trim_pool(lock, *pool, 0);
  // What is still in use, or still waits for its stream, goes to the default pool, which gives it back in time.
  MemoryPool& heir = *pool->device->default_pool;
  heir.unused.merge(pool->unused);
  heir.reserved += pool->reserved;
  heir.used += pool->used;
  for (auto& [begin, allocation] : driver().allocations.all())
    if (allocation.pool == pool) allocation.pool = &heir;
  std::erase(pools(), pool);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t keep_bytes) {
  SIMCUDA_CALL(kContextless);
  MemoryPool* pool = find_pool(handle);
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  trim_pool(lock, *pool, keep_bytes);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  SIMCUDA_CALL(kContextless);
  MemoryPool* pool = find_pool(handle);
  if (!pool || !value) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  return set_attribute(*pool, attribute, value);
}

extern "C" CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  SIMCUDA_CALL(kContextless);
  MemoryPool* pool = find_pool(handle);
  if (!pool || !value) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  return get_attribute(*pool, attribute, value);
}

// Access is not enforced: every device reaches every address here.
extern "C" CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* access, size_t) {
  SIMCUDA_CALL(kContextless);
  return find_pool(handle) && access ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

extern "C" CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation* location) {
  SIMCUDA_CALL(kContextless);
  if (!find_pool(handle) || !flags || !location) return CUDA_ERROR_INVALID_VALUE;
  *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* handle, CUdevice ordinal) {
  SIMCUDA_CALL(kContextless);
  Device* device = find_device(ordinal);
  return device ? give_handle(handle, device->default_pool) : CUDA_ERROR_INVALID_DEVICE;
}

extern "C" CUresult cuDeviceGetMemPool(CUmemoryPool* handle, CUdevice ordinal) {
  SIMCUDA_CALL(kContextless);
  Device* device = find_device(ordinal);
  return device ? give_handle(handle, device->pool) : CUDA_ERROR_INVALID_DEVICE;
}

extern "C" CUresult cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool handle) {
  SIMCUDA_CALL(kContextless);
  Device* device = find_device(ordinal);
  MemoryPool* pool = find_pool(handle);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if (!pool || pool->device != device) return CUDA_ERROR_INVALID_VALUE;
  device->pool = pool;
  return CUDA_SUCCESS;
}

#if CUDA_VERSION >= 13000
// [documented] The pools of a location: a device's pinned memory is the one that cuDeviceGetMemPool means.
static CUresult device_at(const CUmemLocation* location, CUmemAllocationType type, Device*& device) {
  if (!location || type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return refuse("a memory pool outside of a device");
  device = find_device(location->id);
  return device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

extern "C" CUresult cuMemGetDefaultMemPool(CUmemoryPool* handle, CUmemLocation* location, CUmemAllocationType type) {
  SIMCUDA_CALL(kContextless);
  Device* device = nullptr;
  const CUresult result = device_at(location, type, device);
  return device ? give_handle(handle, device->default_pool) : result;
}

extern "C" CUresult cuMemGetMemPool(CUmemoryPool* handle, CUmemLocation* location, CUmemAllocationType type) {
  SIMCUDA_CALL(kContextless);
  Device* device = nullptr;
  const CUresult result = device_at(location, type, device);
  return device ? give_handle(handle, device->pool) : result;
}

extern "C" CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool handle) {
  SIMCUDA_CALL(kContextless);
  Device* device = nullptr;
  if (const CUresult result = device_at(location, type, device)) return result;
  MemoryPool* pool = find_pool(handle);
  if (!pool || pool->device != device) return CUDA_ERROR_INVALID_VALUE;
  device->pool = pool;
  return CUDA_SUCCESS;
}
#endif
