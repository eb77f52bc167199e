// What a context can be told and asked that changes nothing here: limits, cache preferences, occupancy, profiler.
#include <algorithm>
#include <array>

#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/kernel.hpp"
#include "tests/simcuda/driver/own_memory.hpp"

using namespace simcuda;

namespace {

// [assumed] The first values are an H100's.
constexpr std::array<size_t, 8> kLimits = {1024, 7 << 20, 8 << 20, 2, 2048, 64, 0, 0};

CUresult need_context() {
  CUresult result;
  current_context(result);
  return result;
}

// [assumed] 2048 threads fill a multiprocessor, 32 blocks at most; registers and shared memory do not limit.
CUresult blocks_per_multiprocessor(int* blocks, CUfunction function, int block_size) {
  Locked lock = lock_driver();
  if (!blocks || block_size <= 0 || block_size > 1024) return CUDA_ERROR_INVALID_VALUE;
  if (!find_function(lock, function)) return CUDA_ERROR_INVALID_HANDLE;
  *blocks = std::min(32, 2048 / block_size);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
  SIMCUDA_CALL(kOrdinary);
  if (const CUresult missing = need_context()) return missing;
  const auto index = static_cast<size_t>(limit);
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (index >= kLimits.size()) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  Locked lock = lock_driver();
  CUresult result;
  const auto& changed = current_context(result)->limits;
  const auto found = changed.find(limit);
  *value = found == changed.end() ? kLimits[index] : found->second;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  SIMCUDA_CALL(kOrdinary);
  if (const CUresult missing = need_context()) return missing;
  if (static_cast<size_t>(limit) >= kLimits.size()) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  Locked lock = lock_driver();
  CUresult result;
  Context& context = *current_context(result);
  // [documented] It may be out of memory: heaps and stacks are made anew.
  context.limit_memory.erase(limit);
  auto memory = OwnMemory::take_overhead(lock, *context.device);
  if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
  context.limit_memory[limit] = std::move(memory);
  context.limits[limit] = value;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
  SIMCUDA_CALL(kOrdinary);
  *config = CU_FUNC_CACHE_PREFER_NONE;
  return need_context();
}

extern "C" CUresult cuCtxSetCacheConfig(CUfunc_cache) {
  SIMCUDA_CALL(kOrdinary);
  return need_context();
}

extern "C" CUresult cuCtxGetSharedMemConfig(CUsharedconfig* config) {
  SIMCUDA_CALL(kOrdinary);
  *config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
  return need_context();
}

extern "C" CUresult cuCtxSetSharedMemConfig(CUsharedconfig) {
  SIMCUDA_CALL(kOrdinary);
  return need_context();
}

extern "C" CUresult cuCtxResetPersistingL2Cache(void) {
  SIMCUDA_CALL(kOrdinary);
  return need_context();
}

extern "C" CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int block_size,
                                                                size_t) {
  SIMCUDA_CALL(kOrdinary);
  return blocks_per_multiprocessor(blocks, function, block_size);
}

extern "C" CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function,
                                                                         int block_size, size_t, unsigned) {
  SIMCUDA_CALL(kOrdinary);
  return blocks_per_multiprocessor(blocks, function, block_size);
}

extern "C" CUresult cuProfilerStart(void) {
  SIMCUDA_CALL(kOrdinary);
  return need_context();
}

extern "C" CUresult cuProfilerStop(void) {
  SIMCUDA_CALL(kOrdinary);
  return need_context();
}
