// See library.hpp. Thin: each function to the one of the kind that its hook calls too.
#include <errno.h>

#include <bit>

#include "shim/cuda/device_memory.hpp"
#include "shim/cuda/hooks/substitute.hpp"
#include "shim/cuda/next.hpp"
#include "shim/host/hooks/hooks.hpp"
#include "shim/library/library.hpp"
#include "shim/library/pools.hpp"
#include "shim/opencl/buffers.hpp"
#include "shim/opencl/next.hpp"
#include "shim/opencl/state.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/process.hpp"
#include "shim/process/uncounted.hpp"
#include "stats/sites.hpp"

namespace cistern::library {
namespace {

const KindPool* find_pool(int id) {
  for (const Kind* kind : kinds())
    for (const KindPool& pool : kind->pools)
      if (pool.id == id) return &pool;
  return nullptr;
}

opencl::cl_context own(struct _cl_context* context) { return reinterpret_cast<opencl::cl_context>(context); }

}  // namespace

const char* version() { return CISTERN_VERSION; }

int get_statistics(cistern_kind kind, cistern_statistics* statistics) {
  const KindPool* const pool = find_pool(kind);
  if (!pool || !statistics) return -1;
  std::uint64_t largest_kept = 0;
  const KindFigures figures = pool->figures(&largest_kept);
  *statistics = {.allocations = figures.allocations,
                 .frees = figures.frees,
                 .pool_hits = figures.pool_hits,
                 .pool_misses = figures.pool_misses,
                 .driver_allocs = figures.driver_allocs,
                 .driver_frees = figures.driver_frees,
                 .live_blocks = figures.live_blocks,
                 .live_bytes = figures.live_bytes,
                 .peak_bytes = figures.peak_bytes,
                 .pooled_blocks = figures.pooled_blocks,
                 .pooled_bytes = figures.pooled_bytes,
                 .largest_pooled_bytes = largest_kept,
                 .failed = figures.failed};
  return 0;
}

cistern_status set_option(const char* name, const char* value) {
  switch (cistern::set_option(name, value)) {
    case OptionSet::done:
      return CISTERN_OK;
    case OptionSet::too_late:
      return CISTERN_TOO_LATE;
    default:
      return CISTERN_INVALID;
  }
}

size_t defragment(cistern_kind kind) {
  constexpr std::uint64_t kUnusedForNs = 1'000'000'000;
  const KindPool* const pool = find_pool(kind);
  return pool ? pool->trim(0, kUnusedForNs) : 0;
}

size_t trim(cistern_kind kind, size_t keep_bytes) {
  const KindPool* const pool = find_pool(kind);
  return pool ? pool->trim(keep_bytes, 0) : 0;
}

// --- Host memory: the pool's fast path in line, as in its hooks; nothing in those is of an interposed call alone
namespace {

[[gnu::noinline]] void* allocate_slowly(std::size_t bytes, std::size_t alignment, const void* caller) {
  const CalledFrom here(caller, Calls::frequent);
  if (!alignment) return host::hook_malloc(bytes);
  if (!std::has_single_bit(alignment)) {
    errno = EINVAL;
    return nullptr;
  }
  void* block = nullptr;
  const std::size_t at_least = alignment < sizeof(void*) ? sizeof(void*) : alignment;
  if (const int error = host::hook_posix_memalign(&block, at_least, bytes)) errno = error;
  return block;
}

[[gnu::noinline]] int deallocate_slowly(void* block, const void* caller) {
  const CalledFrom here(caller, Calls::frequent);
  if (refuse_block_of_pool("cistern_deallocate", block)) return EINVAL;
  return host::free_checked(block, "cistern_deallocate") ? 0 : EINVAL;
}

}  // namespace

void* allocate(size_t bytes, size_t alignment) {
  if (!alignment) [[likely]]
    if (void* const block = host_pool::take(bytes)) [[likely]]
      return block;
  return allocate_slowly(bytes, alignment, __builtin_return_address(0));
}

int deallocate(void* block) {
  if (!any_pool.load(std::memory_order_relaxed)) [[likely]]
    if (host_pool::give(block)) [[likely]]
      return 0;
  return deallocate_slowly(block, __builtin_return_address(0));
}

void* reallocate(void* block, size_t bytes) {
  constexpr char kApi[] = "cistern_reallocate";
  const CalledFrom here(__builtin_return_address(0), Calls::frequent);
  if (!block) return host::hook_malloc(bytes);
  if (!refuse_block_of_pool(kApi, block) && host::is_live_block(block, kApi))
    return host::hook_realloc(block, bytes ? bytes : 1);
  errno = EINVAL;
  return nullptr;
}

struct _cl_mem* opencl_allocate(struct _cl_context* context, uint64_t flags, size_t bytes, int32_t* error) {
  const CalledFrom here(__builtin_return_address(0), Calls::some);
  if (!opencl::next().clCreateBuffer) {
    if (error) *error = opencl::kInvalidContext;
    return nullptr;
  }
  opencl::make_context_known(own(context));
  return reinterpret_cast<struct _cl_mem*>(opencl::create_buffer({own(context), flags, bytes}, nullptr, error));
}

int32_t opencl_deallocate(struct _cl_mem* buffer, struct _cl_command_queue* last_queue) {
  const CalledFrom here(__builtin_return_address(0), Calls::some);
  if (refuse_block_of_pool("cistern_opencl_deallocate", buffer)) return opencl::kInvalidMemObject;
  if (!buffer || !opencl::next().clReleaseMemObject) return opencl::kInvalidMemObject;
  auto* memory = reinterpret_cast<opencl::cl_mem>(buffer);
  if (last_queue) opencl::note_last_queue(memory, reinterpret_cast<opencl::cl_command_queue>(last_queue));
  return opencl::release_memory(memory);
}

void opencl_forget_context(struct _cl_context* context) {
  opencl::drain_context(own(context));
  opencl::make_context_unknown(own(context));
}

int cuda_allocate(unsigned long long* pointer, size_t bytes) {
  const CalledFrom here(__builtin_return_address(0), Calls::some);
  return cuda::driver_found() ? cuda::allocate_device(pointer, bytes) : cuda::kNoDevice;
}

int cuda_deallocate(unsigned long long pointer) {
  const CalledFrom here(__builtin_return_address(0), Calls::some);
  if (refuse_block_of_pool("cistern_cuda_deallocate", reinterpret_cast<void*>(pointer))) return cuda::kInvalidValue;
  return cuda::driver_found() ? cuda::free_device(pointer) : cuda::kNoDevice;
}

uint64_t driver_lookups(uint64_t* substituted) {
  const cuda::LookUps look_ups = cuda::look_ups();
  if (substituted) *substituted = look_ups.substituted;
  return look_ups.answered;
}

const Interface own_interface{
    kInterface,
    sizeof(Interface),
    CISTERN_VERSION,
#define LIBRARY_CALL(result, name, parameters, arguments) name,
#include "shim/symbols/library.def"
};

}  // namespace cistern::library
