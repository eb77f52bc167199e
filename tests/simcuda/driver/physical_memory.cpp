// Physical memory: cuMemCreate, cuMemRelease, and what a handle says of it.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <unordered_map>

#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/memory.hpp"
#include "tests/simcuda/driver/pool.hpp"
#include "tests/simcuda/driver/virtual_memory.hpp"

namespace simcuda {
namespace {

struct Handle {
  PhysicalPointer memory;
  int references;
};

std::unordered_map<CUmemGenericAllocationHandle, Handle>& handles() {
  static auto& all = *new std::unordered_map<CUmemGenericAllocationHandle, Handle>;
  return all;
}

// [assumed] Before it gives up, the driver returns what its memory pools keep unused.
bool count(Locked& lock, PhysicalMemory& memory) {
  Device& device = *memory.device;
  if (memory.bytes > device.bytes - device.used && !release_unused(lock, device)) return false;
  if (memory.bytes > device.bytes - device.used) return false;
  device.used += memory.counted = memory.bytes;
  counters.created_bytes += static_cast<long long>(memory.counted);
  return true;
}

bool take(Locked& lock, PhysicalMemory& memory) {
  if (memory.device && !count(lock, memory)) return false;
  if (!memory.device || memory.properties.requestedHandleTypes) return make_own_file(memory);
  memory.in_device = memory.device->window.take(memory.bytes, kHostPage);
  return memory.in_device != 0;
}

// [cited: pytorch/pytorch #156074, microsoft/mscclpp #467] Memory for fabric handles is not supported, or not permitted
// without the channels of IMEX.
CUresult check_handle_types(unsigned types) {
  if (types & ~(kDescriptorHandle | kFabricHandle)) return CUDA_ERROR_NOT_SUPPORTED;
  if (!(types & kFabricHandle)) return CUDA_SUCCESS;
  return settings.fabric == 2   ? CUDA_SUCCESS
         : settings.fabric == 1 ? CUDA_ERROR_NOT_PERMITTED
                                : CUDA_ERROR_NOT_SUPPORTED;
}

// [documented] Host memory cannot be shared between processes. A device that does not exist is an invalid device.
CUresult check(const CUmemAllocationProp& wanted, Device*& device) {
  if (wanted.type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  const int location = wanted.location.type;
  if (location == CU_MEM_LOCATION_TYPE_DEVICE) {
    device = find_device(wanted.location.id);
    return device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
  }
  if (location == kHostLocation && wanted.requestedHandleTypes) return CUDA_ERROR_INVALID_VALUE;
  return location == kHostLocation || location == kHostNumaLocation ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult create(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp& wanted) {
  if (!bytes || bytes % granularity()) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  Device* device = nullptr;
  if (const CUresult wrong = check(wanted, device)) return wrong;
  if (const CUresult wrong = check_handle_types(wanted.requestedHandleTypes)) return wrong;
  const auto memory = std::make_shared<PhysicalMemory>(bytes, wanted);
  memory->device = device;
  if (!take(lock, *memory)) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = publish(lock, memory);
  return CUDA_SUCCESS;
}

}  // namespace

PhysicalMemory::~PhysicalMemory() {
  if (own_file >= 0) close(own_file);
  if (!device) return;
  Locked lock = lock_driver();
  device->used -= counted;
  counters.created_bytes -= static_cast<long long>(counted);
  if (!in_device) return;
  // There may be many small parts, so little of each stays committed.
  if (settings.poison) device->window.poison(in_device, bytes, kHostPage);
  device->window.give(in_device, bytes);
}

int PhysicalMemory::file() const { return in_device ? device->window.file() : own_file; }
size_t PhysicalMemory::offset() const { return in_device ? device->window.offset_of(in_device) : 0; }

PhysicalPointer find_physical(Locked&, CUmemGenericAllocationHandle handle) {
  const auto found = handles().find(handle);
  return found == handles().end() ? nullptr : found->second.memory;
}

CUmemGenericAllocationHandle publish(Locked&, const PhysicalPointer& memory) {
  memory->id = driver().allocations.new_id();
  handles().emplace(memory->id, Handle{memory, 1});
  return memory->id;
}

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuMemGetAllocationGranularity(size_t* answer, const CUmemAllocationProp* properties,
                                                  CUmemAllocationGranularity_flags option) {
  SIMCUDA_VIRTUAL_MEMORY_CALL(kContextless);
  if (!answer || !properties || option < CU_MEM_ALLOC_GRANULARITY_MINIMUM ||
      option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
    return CUDA_ERROR_INVALID_VALUE;
  Device* ignored = nullptr;
  if (const CUresult wrong = check(*properties, ignored)) return wrong;
  const auto recommended = static_cast<size_t>(settings.vmm_granularity_recommended.load());
  *answer = option == CU_MEM_ALLOC_GRANULARITY_MINIMUM ? granularity() : std::max(recommended, granularity());
  return CUDA_SUCCESS;
}

extern "C" CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* wanted,
                                unsigned long long flags) {
  SIMCUDA_VIRTUAL_MEMORY_CALL(kContextless | kAllocates);
  if (!handle || !wanted || flags) return CUDA_ERROR_INVALID_VALUE;
  return create(handle, bytes, *wanted);
}

// [documented] The memory is freed once no handle and no mapping refers to it.
extern "C" CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  SIMCUDA_VIRTUAL_MEMORY_CALL(kContextless | kFrees);
  Locked lock = lock_driver();
  const auto found = handles().find(handle);
  if (found == handles().end()) return CUDA_ERROR_INVALID_VALUE;
  if (--found->second.references == 0) handles().erase(found);
  return CUDA_SUCCESS;
}

// [documented] The handle is the one that mapped the memory. The program must release it once more.
extern "C" CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* pointer) {
  SIMCUDA_VIRTUAL_MEMORY_CALL(kContextless);
  Locked lock = lock_driver();
  const Allocation* mapping = driver().allocations.find(to_address(pointer));
  if (!handle || !mapping || mapping->kind != MemoryKind::kMapped) return CUDA_ERROR_INVALID_VALUE;
  const auto memory = std::static_pointer_cast<PhysicalMemory>(mapping->owner);
  ++handles().try_emplace(memory->id, Handle{memory, 0}).first->second.references;
  *handle = memory->id;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                           CUmemGenericAllocationHandle handle) {
  SIMCUDA_VIRTUAL_MEMORY_CALL(kContextless);
  Locked lock = lock_driver();
  const PhysicalPointer memory = find_physical(lock, handle);
  if (!properties || !memory) return CUDA_ERROR_INVALID_VALUE;
  *properties = memory->properties;
  return CUDA_SUCCESS;
}
