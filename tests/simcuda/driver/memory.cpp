// cuMemAlloc, cuMemFree and what they cost: device memory of the current context.
#include "tests/simcuda/driver/memory.hpp"

#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/graph_memory.hpp"
#include "tests/simcuda/driver/pool.hpp"
#include "tests/simcuda/driver/settings.hpp"

namespace simcuda {
namespace {

CUresult allocate(CUdeviceptr* pointer, size_t bytes) {
  if (!pointer) return CUDA_ERROR_INVALID_VALUE;
  // [documented] No bytes: invalid value. [measured] The pointer is written all the same (580 on an H100): [assumed]
  // null.
  if (!bytes) return *pointer = 0, CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  CUresult result;
  Context* context = current_context(result);
  if (!context) return result;
  // [assumed] Before it gives up, the driver returns what its memory pools keep unused.
  uintptr_t address = take_device_memory(lock, *context->device, bytes);
  if (!address && release_unused(lock, *context->device)) address = take_device_memory(lock, *context->device, bytes);
  if (!address) return CUDA_ERROR_OUT_OF_MEMORY;
  driver().allocations.insert({.begin = address,
                               .bytes = bytes,
                               .kind = MemoryKind::kDevice,
                               .context = context,
                               .device = context->device->ordinal});
  ++counters.allocs;
  *pointer = address;
  return CUDA_SUCCESS;
}

bool can_be_freed(const Allocation* allocation) {
  return allocation && (allocation->kind == MemoryKind::kDevice || allocation->kind == MemoryKind::kManaged ||
                        allocation->kind == MemoryKind::kPool || allocation->kind == MemoryKind::kGraph);
}

// [documented] It may wait for the device, but does not for memory of a pool: there the program must have waited.
// [assumed] Where it may, it always does: for all work of the memory's context and of the current one.
void wait_before_free(Locked& lock, const Allocation& allocation) {
  if (allocation.kind == MemoryKind::kPool) return;
  CUresult ignored;
  std::vector<MarkerPointer> markers;
  const Context* owner = allocation.context;
  const Context* current = current_context(ignored);
  for (const Context* context : {owner, current == owner ? nullptr : current})
    if (context && context->alive)
      for (MarkerPointer& marker : unfinished_in(lock, *context)) markers.push_back(std::move(marker));
  wait_for(lock, markers);
}

// [measured] Null is freed with success. A thread without a current context frees as any other does.
CUresult free_memory(CUdeviceptr pointer) {
  if (!pointer) return CUDA_SUCCESS;
  Locked lock = lock_driver();
  const uintptr_t begin = to_address(pointer);
  const Allocation* found = driver().allocations.find_exact(begin);
  if (!can_be_freed(found)) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t identity = found->buffer_id;
  wait_before_free(lock, Allocation(*found));
  found = driver().allocations.find_exact(begin);  // the lock was open: somebody may have freed it as well
  if (!found || found->buffer_id != identity) return CUDA_ERROR_INVALID_VALUE;
  const Allocation allocation = *found;
  ++counters.frees;
  // [assumed] Memory of a graph that is there stays with it: the next launch gives it again.
  if (allocation.kind == MemoryKind::kGraph) return graph_memory_freed(lock, begin), CUDA_SUCCESS;
  driver().allocations.erase(begin);
  release_storage(lock, allocation);
  CUresult ignored;
  const Context* current = current_context(ignored);
  return current ? current->sticky.load() : CUDA_SUCCESS;
}

}  // namespace
}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  SIMCUDA_CALL(kUnsafe | kAllocates);
  return allocate(pointer, bytes);
}

extern "C" CUresult cuMemAllocPitch_v2(CUdeviceptr* pointer, size_t* pitch, size_t width_bytes, size_t height,
                                       unsigned element_bytes) {
  SIMCUDA_CALL(kUnsafe | kAllocates);
  // [documented] The element size must be 4, 8 or 16. [assumed] Pitches are multiples of 512.
  if (!pitch || !width_bytes || !height || (element_bytes != 4 && element_bytes != 8 && element_bytes != 16))
    return CUDA_ERROR_INVALID_VALUE;
  const size_t rounded = round_up(width_bytes, kGranule);
  if (rounded < width_bytes || rounded > SIZE_MAX / height) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = allocate(pointer, rounded * height);
  if (result == CUDA_SUCCESS) *pitch = rounded;
  return result;
}

extern "C" CUresult cuMemFree_v2(CUdeviceptr pointer) {
  SIMCUDA_CALL(kUnsafe | kFrees);
  return free_memory(pointer);
}

extern "C" CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  SIMCUDA_CALL(kOrdinary);
  Locked lock = lock_driver();
  CUresult result;
  const Context* context = current_context(result);
  if (!context) return result;
  // [assumed] Null pointers are left out.
  if (free_bytes) *free_bytes = context->device->bytes - context->device->used;
  if (total_bytes) *total_bytes = context->device->bytes;
  return CUDA_SUCCESS;
}

// [documented] Base and size of the allocation that contains the pointer; either answer may be left out. For virtual
// memory it is the mapping of one handle [cited: ofiwg/libfabric #12473, openucx/ucx #11461]. Some drivers answer not
// found [cited: NVIDIA/nccl #2332].
extern "C" CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr pointer) {
  SIMCUDA_CALL(kOrdinary);
  Locked lock = lock_driver();
  const Allocation* allocation = driver().allocations.find(to_address(pointer));
  if (!allocation || (allocation->kind == MemoryKind::kMapped && settings.vmm_no_range)) return CUDA_ERROR_NOT_FOUND;
  if (base) *base = allocation->begin;
  if (bytes) *bytes = allocation->bytes;
  return CUDA_SUCCESS;
}
