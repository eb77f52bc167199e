// cuMemAllocAsync and cuMemFreeAsync over memory pools, and what a pool reuses.
#include "tests/simcuda/driver/pool.hpp"

#include <algorithm>
#include <cstring>

#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/capture.hpp"
#include "tests/simcuda/driver/graph_memory.hpp"
#include "tests/simcuda/driver/memory.hpp"
#include "tests/simcuda/driver/pool_table.hpp"
#include "tests/simcuda/driver/settings.hpp"
#include "tests/simcuda/driver/stream.hpp"

namespace simcuda {
namespace {

void poison_block(uintptr_t address, size_t bytes) {
  if (settings.poison) std::memset(reinterpret_cast<void*>(address), kPoison, bytes);
}

// [documented] A block may be reused at once in the stream that freed it, and elsewhere when its free was reached (the
// opportunistic reuse of a pool's attributes). [assumed] Only for requests of the same size.
uintptr_t take_unused(MemoryPool& pool, size_t rounded, const Stream& stream) {
  const auto [first, last] = pool.unused.equal_range(rounded);
  const auto found = std::find_if(first, last, [&](const auto& entry) {
    const FreeBlock& block = entry.second;
    return !block.done || block.stream == stream.id || (pool.opportunistic && block.done->done());
  });
  if (found == last) return 0;
  const uintptr_t address = found->second.address;
  pool.unused.erase(found);
  return address;
}

uintptr_t take_new(Locked& lock, MemoryPool& pool, size_t rounded) {
  uintptr_t address = take_device_memory(lock, *pool.device, rounded);
  if (!address && release_unused(lock, *pool.device)) address = take_device_memory(lock, *pool.device, rounded);
  if (!address) return 0;
  pool.reserved += rounded;
  pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
  return address;
}

CUresult allocate_in(Locked& lock, MemoryPool& pool, const Stream& stream, size_t bytes, CUdeviceptr* pointer) {
  const size_t rounded = round_up(bytes, kGranule);
  if (rounded < bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  uintptr_t address = take_unused(pool, rounded, stream);
  if (!address) address = take_new(lock, pool, rounded);
  if (!address) return CUDA_ERROR_OUT_OF_MEMORY;
  pool.used += rounded;
  pool.used_high = std::max(pool.used_high, pool.used);
  driver().allocations.insert({.begin = address,
                               .bytes = bytes,
                               .kind = MemoryKind::kPool,
                               .context = stream.context,
                               .device = pool.device->ordinal,
                               .pool = &pool});
  ++counters.allocs;
  *pointer = address;
  return CUDA_SUCCESS;
}

CUresult allocate(CUdeviceptr* pointer, size_t bytes, MemoryPool* pool, CUstream stream_handle) {
  if (!pointer) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  CUresult result;
  const StreamPointer stream = find_stream(lock, stream_handle, result);
  if (!stream) return result;
  // [measured] It is potentially unsafe: refused while another stream captures (580 on an H100).
  if (!stream->capture && any_capture() && unsafe_call_is_forbidden(lock)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  // [measured] No bytes: success. [assumed] And no memory.
  if (!bytes) return *pointer = 0, CUDA_SUCCESS;
  // [documented] Without a pool it is the current one of the stream's device.
  if (!pool) pool = stream->context->device->pool;
  // [documented] In a capture it becomes a memory node of the graph.
  if (stream->capture) return capture_allocation(lock, *stream, *pool->device, bytes, pointer);
  return allocate_in(lock, *pool, *stream, bytes, pointer);
}

CUresult free_pool_block(Locked& lock, const Allocation& allocation, const StreamPointer& stream) {
  const size_t rounded = round_up(allocation.bytes, kGranule);
  const uintptr_t address = allocation.begin;
  MemoryPool& pool = *allocation.pool;
  driver().allocations.erase(address);
  const MarkerPointer done = queue_operation(
      lock, stream, [address, rounded] { poison_block(address, rounded); }, {}, true);
  pool.used -= rounded;
  pool.unused.emplace(rounded, FreeBlock{address, stream->id, done});
  return CUDA_SUCCESS;
}

// [assumed] Memory of cuMemAlloc and managed memory may be freed in stream order too; it goes back to the device when
// the stream gets there.
CUresult free_other(Locked& lock, const Allocation& allocation, const StreamPointer& stream) {
  driver().allocations.erase(allocation.begin);
  const auto release = [allocation] {
    Locked inside = lock_driver();
    release_storage(inside, allocation);
  };
  queue_operation(lock, stream, release, {}, true);
  return CUDA_SUCCESS;
}

CUresult free_async(CUdeviceptr pointer, CUstream stream_handle) {
  Locked lock = lock_driver();
  CUresult result;
  const StreamPointer stream = find_stream(lock, stream_handle, result);
  if (!stream) return result;
  const Allocation* found = driver().allocations.find_exact(to_address(pointer));
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture) return capture_free(lock, *stream, *found);
  const Allocation allocation = *found;
  ++counters.frees;
  switch (allocation.kind) {
    case MemoryKind::kPool:
      return free_pool_block(lock, allocation, stream);
    case MemoryKind::kDevice:
    case MemoryKind::kManaged:
      return free_other(lock, allocation, stream);
    case MemoryKind::kGraph:
      return graph_memory_freed(lock, allocation.begin), CUDA_SUCCESS;
    default:
      --counters.frees;
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// Returns unused blocks to the device until no more than that many bytes are kept.
bool trim(Locked& lock, MemoryPool& pool, cuuint64_t keep_bytes) {
  bool any = false;
  for (auto block = pool.unused.begin(); block != pool.unused.end() && pool.reserved > keep_bytes;) {
    if (block->second.done && !block->second.done->done()) {
      ++block;
      continue;
    }
    give_device_memory(lock, *pool.device, block->second.address, block->first);
    pool.reserved -= block->first;
    block = pool.unused.erase(block);
    any = true;
  }
  return any;
}

}  // namespace

void give_to_pool(Locked& lock, const Allocation& allocation) {
  const size_t rounded = round_up(allocation.bytes, kGranule);
  lock.unlock();
  poison_block(allocation.begin, rounded);
  lock.lock();
  allocation.pool->used -= rounded;
  allocation.pool->unused.emplace(rounded, FreeBlock{allocation.begin, 0, nullptr});
}

bool release_unused(Locked& lock, Device& device) {
  bool any = false;
  for (MemoryPool* pool : all_pools(lock))
    if (pool->device == &device && trim(lock, *pool, 0)) any = true;
  return any;
}

void trim_pool(Locked& lock, MemoryPool& pool, cuuint64_t keep_bytes) { trim(lock, pool, keep_bytes); }

void trim_pools_after_wait(Locked& lock) {
  for (MemoryPool* pool : all_pools(lock))
    if (pool->reserved > pool->release_threshold && !pool->unused.empty()) trim(lock, *pool, pool->release_threshold);
}

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  SIMCUDA_CALL(kAllocates);
  return allocate(pointer, bytes, nullptr, stream);
}
SIMCUDA_PER_THREAD_STREAM(cuMemAllocAsync, _ptsz, (CUdeviceptr * pointer, size_t bytes, CUstream stream),
                          (pointer, bytes, stream))

extern "C" CUresult cuMemAllocFromPoolAsync(CUdeviceptr* pointer, size_t bytes, CUmemoryPool handle, CUstream stream) {
  SIMCUDA_CALL(kAllocates);
  MemoryPool* pool = find_pool(handle);
  return pool ? allocate(pointer, bytes, pool, stream) : CUDA_ERROR_INVALID_VALUE;
}
SIMCUDA_PER_THREAD_STREAM(cuMemAllocFromPoolAsync, _ptsz,
                          (CUdeviceptr * pointer, size_t bytes, CUmemoryPool pool, CUstream stream),
                          (pointer, bytes, pool, stream))

extern "C" CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  SIMCUDA_CALL(kFrees);
  return free_async(pointer, stream);
}
SIMCUDA_PER_THREAD_STREAM(cuMemFreeAsync, _ptsz, (CUdeviceptr pointer, CUstream stream), (pointer, stream))
