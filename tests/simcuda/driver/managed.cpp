// Managed memory: host pages that every device reaches. Advice and prefetching change nothing that can be seen here.
#include <sys/mman.h>

#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/memory.hpp"
#include "tests/simcuda/driver/own_memory.hpp"
#include "tests/simcuda/driver/settings.hpp"

using namespace simcuda;

namespace {

// [documented] Advice and prefetching are for managed memory.
CUresult check_managed(Locked&, CUdeviceptr pointer, size_t bytes) {
  const Allocation* allocation = driver().allocations.find(to_address(pointer));
  const bool inside = allocation && allocation->kind == MemoryKind::kManaged &&
                      to_address(pointer) + bytes <= allocation->begin + allocation->bytes;
  return inside && bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult prefetch(CUdeviceptr pointer, size_t bytes, CUstream stream_handle) {
  Locked lock = lock_driver();
  CUresult result;
  const StreamPointer stream = find_stream(lock, stream_handle, result);
  if (!stream) return result;
  if (const CUresult wrong = check_managed(lock, pointer, bytes)) return wrong;
  return enqueue(lock, stream, Task{CU_GRAPH_NODE_TYPE_EMPTY, [] {}});
}

}  // namespace

extern "C" CUresult cuMemAllocManaged(CUdeviceptr* pointer, size_t bytes, unsigned flags) {
  SIMCUDA_CALL(kUnsafe | kAllocates);
  if (!pointer || !bytes || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
    return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  CUresult result;
  Context* context = current_context(result);
  if (!context) return result;
  // [documented] Managed memory may exceed the device's: it is not counted there. Before compute capability 6.0 it is.
  std::shared_ptr<void> on_device;
  if (settings.managed_on_device && !(on_device = OwnMemory::take(lock, *context->device, bytes)))
    return CUDA_ERROR_OUT_OF_MEMORY;
  void* const mapped =
      mmap(nullptr, kManagedGuard + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  void* const memory = static_cast<char*>(mapped) + kManagedGuard;
  mprotect(mapped, kManagedGuard, PROT_NONE);
  driver().allocations.insert({.begin = to_address(memory),
                               .bytes = bytes,
                               .kind = MemoryKind::kManaged,
                               .context = context,
                               .device = context->device->ordinal,
                               .flags = flags,
                               .owner = std::move(on_device)});
  ++counters.allocs;
  *pointer = to_address(memory);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t bytes, CUdevice, CUstream stream) {
  SIMCUDA_CALL(kOrdinary);
  return prefetch(pointer, bytes, stream);
}
SIMCUDA_PER_THREAD_STREAM(cuMemPrefetchAsync, _ptsz,
                          (CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream),
                          (pointer, bytes, device, stream))

extern "C" CUresult cuMemAdvise(CUdeviceptr pointer, size_t bytes, CUmem_advise, CUdevice) {
  SIMCUDA_CALL(kOrdinary);
  Locked lock = lock_driver();
  return check_managed(lock, pointer, bytes);
}

#if CUDA_VERSION >= 12020
extern "C" CUresult cuMemPrefetchAsync_v2(CUdeviceptr pointer, size_t bytes, CUmemLocation, unsigned, CUstream stream) {
  SIMCUDA_CALL(kOrdinary);
  return prefetch(pointer, bytes, stream);
}
SIMCUDA_PER_THREAD_STREAM(cuMemPrefetchAsync_v2, _ptsz,
                          (CUdeviceptr pointer, size_t bytes, CUmemLocation location, unsigned flags, CUstream stream),
                          (pointer, bytes, location, flags, stream))

extern "C" CUresult cuMemAdvise_v2(CUdeviceptr pointer, size_t bytes, CUmem_advise, CUmemLocation) {
  SIMCUDA_CALL(kOrdinary);
  Locked lock = lock_driver();
  return check_managed(lock, pointer, bytes);
}
#endif
