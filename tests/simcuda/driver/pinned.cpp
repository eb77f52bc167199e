// Host memory that the device can reach: allocated (pinned), registered, managed.
#include <sys/mman.h>

#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/memory.hpp"
#include "tests/simcuda/driver/settings.hpp"

using namespace simcuda;

namespace {

constexpr unsigned kHostAllocFlags =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;

// [assumed] By the page that the memory touches, in the calling thread, and half as long to unlock it.
long long time_to_lock(uintptr_t begin, size_t bytes) {
  constexpr size_t kPage = 4096;
  return settings.page_lock_ns * static_cast<long long>((begin % kPage + bytes + kPage - 1) / kPage);
}

void spend_locking(uintptr_t begin, size_t bytes) {
  busy_wait(settings.pin_latency_ns_per_mib * static_cast<long long>(bytes) / (1 << 20) + time_to_lock(begin, bytes));
}

CUresult allocate(void** pointer, size_t bytes, unsigned flags) {
  if (!pointer || flags & ~kHostAllocFlags) return CUDA_ERROR_INVALID_VALUE;
  spend_locking(0, bytes);
  Locked lock = lock_driver();
  CUresult result;
  Context* context = current_context(result);
  if (!context) return result;
  // [measured] No bytes: success. [assumed] And no memory.
  if (!bytes) return *pointer = nullptr, CUDA_SUCCESS;
  const size_t rounded = round_up(bytes, kGranule);
  // [assumed] Small blocks share pages, 512 bytes apart.
  const uintptr_t address = rounded < bytes ? 0 : driver().pinned.take(rounded);
  if (!address) return CUDA_ERROR_OUT_OF_MEMORY;
  // [documented] With unified addressing all host allocations are portable and mapped; the flags are kept as given.
  driver().allocations.insert({.begin = address,
                               .bytes = bytes,
                               .kind = MemoryKind::kPinned,
                               .context = context,
                               .device = context->device->ordinal,
                               .flags = flags});
  ++counters.pinned_allocs;
  *pointer = reinterpret_cast<void*>(address);
  return CUDA_SUCCESS;
}

bool overlaps_registered(uintptr_t begin, size_t bytes) {
  for (const auto& [address, allocation] : driver().allocations.all())
    if (allocation.kind == MemoryKind::kRegistered && address < begin + bytes && begin < address + allocation.bytes)
      return true;
  return false;
}

// The host allocation or registration that contains the pointer, or null.
const Allocation* find_host(const void* pointer) {
  const Allocation* allocation = driver().allocations.find(to_address(pointer));
  return allocation && allocation->host_memory() ? allocation : nullptr;
}

}  // namespace

extern "C" CUresult cuMemAllocHost_v2(void** pointer, size_t bytes) {
  SIMCUDA_CALL(kUnsafe | kAllocates);
  return allocate(pointer, bytes, 0);
}

extern "C" CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  SIMCUDA_CALL(kUnsafe | kAllocates);
  return allocate(pointer, bytes, flags);
}

// [assumed] Like cuMemFree it waits for the work of the context that owns the memory.
extern "C" CUresult cuMemFreeHost(void* pointer) {
  SIMCUDA_CALL(kUnsafe | kFrees);
  if (!pointer) return CUDA_SUCCESS;
  Locked lock = lock_driver();
  const Allocation* found = driver().allocations.find_exact(to_address(pointer));
  if (!found || found->kind != MemoryKind::kPinned) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t identity = found->buffer_id;
  wait_for(lock, unfinished_in(lock, *found->context));
  found = driver().allocations.find_exact(to_address(pointer));
  if (!found || found->buffer_id != identity) return CUDA_ERROR_INVALID_VALUE;
  const Allocation allocation = *found;
  driver().allocations.erase(allocation.begin);
  ++counters.pinned_frees;
  release_storage(lock, allocation);
  lock.unlock();
  busy_wait(time_to_lock(0, allocation.bytes) / 2);
  return CUDA_SUCCESS;
}

static CUresult get_device_pointer(CUdeviceptr* device_pointer, void* pointer, unsigned flags) {
  if (!device_pointer || flags) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  if (!find_host(pointer)) return CUDA_ERROR_INVALID_VALUE;
  *device_pointer = to_address(pointer);  // [documented] one address on both sides with unified addressing
  return CUDA_SUCCESS;
}

extern "C" CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device_pointer, void* pointer, unsigned flags) {
  SIMCUDA_CALL(kOrdinary);
  return get_device_pointer(device_pointer, pointer, flags);
}

extern "C" CUresult cuMemHostGetFlags(unsigned* flags, void* pointer) {
  SIMCUDA_CALL(kOrdinary);
  Locked lock = lock_driver();
  const Allocation* allocation = find_host(pointer);
  if (!flags || !allocation || allocation->kind != MemoryKind::kPinned) return CUDA_ERROR_INVALID_VALUE;
  // [measured] With unified addressing all of it is mapped, and is said to be. All is portable, and is not said to be.
  *flags = (allocation->flags & ~unsigned{CU_MEMHOSTALLOC_PORTABLE}) | CU_MEMHOSTALLOC_DEVICEMAP;
  return CUDA_SUCCESS;
}

static CUresult register_host(void* pointer, size_t bytes, unsigned flags) {
  constexpr unsigned kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |
                              CU_MEMHOSTREGISTER_READ_ONLY;
  if (!pointer || !bytes || flags & ~kKnown) return CUDA_ERROR_INVALID_VALUE;
  spend_locking(to_address(pointer), bytes);
  Locked lock = lock_driver();
  CUresult result;
  Context* context = current_context(result);
  if (!context) return result;
  // [documented] Registered memory must not overlap. [measured] Pinned memory is an invalid value instead; [assumed]
  // all other memory of the driver is, too.
  if (driver().allocations.overlaps(to_address(pointer), bytes))
    return overlaps_registered(to_address(pointer), bytes) ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                                                           : CUDA_ERROR_INVALID_VALUE;
  driver().allocations.insert({.begin = to_address(pointer),
                               .bytes = bytes,
                               .kind = MemoryKind::kRegistered,
                               .context = context,
                               .device = context->device->ordinal,
                               .flags = flags});
  return CUDA_SUCCESS;
}

extern "C" CUresult cuMemHostRegister(void* pointer, size_t bytes, unsigned flags) {
  SIMCUDA_CALL(kUnsafe);
  return register_host(pointer, bytes, flags);
}

extern "C" CUresult cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned flags) {
  SIMCUDA_CALL(kUnsafe);
  return register_host(pointer, bytes, flags);
}

// [documented] The base address must be the registered one. [measured] Another address of it, or of pinned memory, is
// an invalid value.
extern "C" CUresult cuMemHostUnregister(void* pointer) {
  SIMCUDA_CALL(kUnsafe);
  Locked lock = lock_driver();
  const Allocation* found = driver().allocations.find_exact(to_address(pointer));
  if (!found || found->kind != MemoryKind::kRegistered)
    return find_host(pointer) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  const size_t bytes = found->bytes;
  wait_for(lock, unfinished_in(lock, *found->context));
  driver().allocations.erase(to_address(pointer));
  lock.unlock();
  busy_wait(time_to_lock(to_address(pointer), bytes) / 2);
  return CUDA_SUCCESS;
}
