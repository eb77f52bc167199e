// The calls of the C interface that are host memory's by name (cistern/cistern.h): the pool's fast path in line, as in
// its hooks; nothing in those is of an interposed call alone.
#include <errno.h>

#include "pool/base/bit_count.hpp"
#include "shim/host/hooks/hooks.hpp"
#include "shim/library/answers.hpp"
#include "shim/library/library.hpp"
#include "shim/library/pools.hpp"
#include "shim/process/process.hpp"
#include "stats/sites.hpp"

namespace cistern::library {
namespace {

[[gnu::noinline]] void* allocate_slowly(std::size_t bytes, std::size_t alignment, const void* caller) {
  const CalledFrom here(caller, Calls::frequent);
  if (!alignment) return host::hook_malloc(bytes);
  if (!is_power_of_two(alignment)) {
    errno = EINVAL;
    return nullptr;
  }
  void* block = nullptr;
  const std::size_t at_least = alignment < sizeof(void*) ? sizeof(void*) : alignment;
  if (const int error = host::hook_posix_memalign(&block, at_least, bytes)) errno = error;
  return block;
}

[[gnu::noinline]] cistern_status deallocate_slowly(void* block, const void* caller) {
  constexpr char kApi[] = "cistern_deallocate";
  const CalledFrom here(caller, Calls::frequent);
  native = 0;
  return !refuse_block_of_pool(kApi, block) && host::free_checked(block, kApi) ? CISTERN_OK : CISTERN_INVALID;
}

}  // namespace

void* allocate(size_t bytes, size_t alignment) {
  if (!alignment) [[likely]]
    if (void* const block = host_pool::take(bytes)) [[likely]]
      return block;
  return allocate_slowly(bytes, alignment, __builtin_return_address(0));
}

cistern_status deallocate(void* block) {
  if (!any_pool.load(std::memory_order_relaxed)) [[likely]]
    if (host_pool::give(block)) [[likely]]
      return CISTERN_OK;
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

}  // namespace cistern::library
