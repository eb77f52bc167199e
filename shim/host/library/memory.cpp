// Host memory as the library's pools take and give it: from the process's own pool, or in pages of a block's own where
// they are to lie somewhere.
//
// Room: the C interface's side of host memory: its table, and the calls that are host memory's by name.
// May include: pool/base, pool/heap, stats, shim/include/cistern, shim/process, shim/library, shim/host,
//              shim/host/hooks.
#include <errno.h>

#include <algorithm>

#include "pool/base/page_size.hpp"
#include "pool/heap/blocks.hpp"
#include "shim/host/hooks/hooks.hpp"
#include "shim/host/library_side.hpp"
#include "shim/host/placement.hpp"
#include "shim/host/serving.hpp"
#include "shim/library/answers.hpp"
#include "shim/library/kind_memory.hpp"

namespace cistern::host {
namespace {

using library::BlockRequest;
using library::refused;
using library::Taken;

constexpr std::size_t kHugePage = std::size_t{2} << 20;

bool is_placed(const BlockRequest& request) { return request.where & (CISTERN_ON_NODE | CISTERN_HUGE_PAGES); }

// Pages that are this block's alone, where they are wanted.
cistern_status take_placed(const BlockRequest& request, Taken* taken) {
  const bool huge = request.where & CISTERN_HUGE_PAGES;
  const std::size_t page = huge ? kHugePage : page_bytes();
  const std::size_t bytes = (request.bytes + page - 1) & ~(page - 1);
  void* const memory = library::allocate(bytes, std::max(page, request.alignment));
  if (!memory) return refused(ENOMEM, CISTERN_NO_MEMORY);
  const int node = request.where & CISTERN_ON_NODE ? request.node : kAnyNode;
  if (const int error = place_block(memory, bytes, node, huge)) {
    free_checked(memory, "cistern_pool_allocate");
    return refused(error, error == EINVAL && node != kAnyNode ? CISTERN_INVALID : CISTERN_DRIVER);
  }
  taken->base = reinterpret_cast<std::uintptr_t>(memory);
  taken->placed_bytes = bytes;
  return CISTERN_OK;
}

cistern_status take(const BlockRequest& request, Taken* taken) {
  if (is_placed(request)) return take_placed(request, taken);
  taken->base = reinterpret_cast<std::uintptr_t>(library::allocate(request.bytes, request.alignment));
  return taken->base ? CISTERN_OK : refused(ENOMEM, CISTERN_NO_MEMORY);
}

cistern_status give(const Taken& taken, void*, library::InOrder) {
  auto* const memory = reinterpret_cast<void*>(taken.base);
  if (taken.placed_bytes) unplace_block(memory, taken.placed_bytes);
  return free_checked(memory, "cistern_pool_deallocate") ? CISTERN_OK : CISTERN_INVALID;
}

cistern_status reserve(const BlockRequest& request, std::size_t count) {
  return host_pool::reserve_blocks(request.bytes, count) ? CISTERN_OK : refused(ENOMEM, CISTERN_NO_MEMORY);
}

cistern_status resize(const char* api, void** block, std::size_t bytes) {
  const int kept_errno = errno;
  if (!is_live_block(*block, api)) return CISTERN_INVALID;
  void* const moved = hook_realloc(*block, bytes);
  errno = kept_errno;
  if (!moved) return refused(ENOMEM, CISTERN_NO_MEMORY);
  *block = moved;
  return CISTERN_OK;
}

}  // namespace

extern constexpr library::KindMemory pool_memory = {
    .kind = CISTERN_HOST,
    .name = "host",
    .alignment = SIZE_MAX,
    .where = CISTERN_ON_NODE | CISTERN_HUGE_PAGES,
    .take = take,
    .give = give,
    .reserve = reserve,
    .may_reserve = pool_serves,
    .resize = resize,
};
static_assert(is_whole(pool_memory));

}  // namespace cistern::host
