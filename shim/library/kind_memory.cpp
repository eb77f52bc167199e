// See kind_memory.hpp.
#include "shim/library/kind_memory.hpp"

#include <string.h>

#include "pool/base/bit_count.hpp"
#include "shim/process/headroom.hpp"
#include "shim/process/kind.hpp"
#include "stats/counters.hpp"

namespace cistern::library {

const KindMemory* memory_of(cistern_kind kind) {
  for (const Kind* of : kinds())
    for (const KindMemory* memory : of->memory)
      if (memory->kind == kind) return memory;
  return nullptr;
}

cistern_status check(const BlockRequest& request) {
  const KindMemory& memory = *request.memory;
  if (!request.bytes) return CISTERN_INVALID;
  if (request.bytes > PTRDIFF_MAX / 2) return CISTERN_NO_MEMORY;
  if (request.alignment && (!is_power_of_two(request.alignment) || request.alignment > PTRDIFF_MAX / 4))
    return CISTERN_INVALID;
  if ((memory.is_handle && request.alignment) || (memory.of_context && !request.context)) return CISTERN_INVALID;
  const bool right_device = !(request.where & CISTERN_ON_DEVICE) || request.device >= 0;
  const bool right_node = !(request.where & CISTERN_ON_NODE) || request.node >= 0;
  return (request.where & ~memory.where) || !right_device || !right_node ? CISTERN_INVALID : CISTERN_OK;
}

cistern_status take(const BlockRequest& request, Taken* taken) {
  const KindMemory& memory = *request.memory;
  born_from_pool = false;
  cistern_status status;
  if (request.alignment <= memory.alignment) [[likely]] {
    status = memory.take(request, taken);
    taken->address = taken->base;
  } else {
    BlockRequest with_room = request;
    with_room.bytes += request.alignment;
    status = memory.take(with_room, taken);
    taken->address = (taken->base + request.alignment - 1) & ~(request.alignment - 1);
  }
  taken->was_kept = born_from_pool;  // KindCounters::block_born() sets it
  return status;
}

cistern_status reserve(const BlockRequest& request, std::size_t count) {
  const KindMemory& memory = *request.memory;
  if (!memory.reserve || (memory.may_reserve && !memory.may_reserve())) return CISTERN_INVALID;
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(request.bytes, count, &bytes)) return CISTERN_NO_MEMORY;
  const bool takes_pages = !memory.copy_contents;
  if (takes_pages && bytes > available_bytes()) return CISTERN_NO_MEMORY;
  return memory.reserve(request, count);
}

cistern_status copy_contents(const KindMemory& memory, void* target, const void* source, std::size_t bytes, int device,
                             void* queue) {
  if (memory.copy_contents) return memory.copy_contents(target, source, bytes, device, queue);
  memcpy(target, source, bytes);
  return CISTERN_OK;
}

}  // namespace cistern::library
