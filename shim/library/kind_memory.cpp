// See kind_memory.hpp.
#include "shim/library/kind_memory.hpp"

#include <string.h>

#include <bit>

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

cistern_status check(const Wanted& wanted) {
  const KindMemory& memory = *wanted.memory;
  if (!wanted.bytes) return CISTERN_INVALID;
  if (wanted.bytes > PTRDIFF_MAX / 2) return CISTERN_NO_MEMORY;
  if (wanted.alignment && (!std::has_single_bit(wanted.alignment) || wanted.alignment > PTRDIFF_MAX / 4))
    return CISTERN_INVALID;
  if ((memory.is_handle && wanted.alignment) || (memory.of_context && !wanted.context)) return CISTERN_INVALID;
  const bool right_device = !(wanted.where & CISTERN_ON_DEVICE) || wanted.device >= 0;
  const bool right_node = !(wanted.where & CISTERN_ON_NODE) || wanted.node >= 0;
  return (wanted.where & ~memory.where) || !right_device || !right_node ? CISTERN_INVALID : CISTERN_OK;
}

cistern_status take(const Wanted& wanted, Taken* taken) {
  const KindMemory& memory = *wanted.memory;
  born_from_pool = false;
  cistern_status status;
  if (wanted.alignment <= memory.alignment) [[likely]] {
    status = memory.take(wanted, taken);
    taken->address = taken->base;
  } else {
    Wanted with_room = wanted;
    with_room.bytes += wanted.alignment;
    status = memory.take(with_room, taken);
    taken->address = (taken->base + wanted.alignment - 1) & ~(wanted.alignment - 1);
  }
  taken->was_kept = born_from_pool;
  return status;
}

cistern_status reserve(const Wanted& wanted, std::size_t count) {
  const KindMemory& memory = *wanted.memory;
  if (!memory.reserve || (memory.may_reserve && !memory.may_reserve())) return CISTERN_INVALID;
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(wanted.bytes, count, &bytes)) return CISTERN_NO_MEMORY;
  const bool takes_pages = !memory.copy_contents;
  if (takes_pages && bytes > available_bytes()) return CISTERN_NO_MEMORY;
  return memory.reserve(wanted, count);
}

cistern_status copy_contents(const KindMemory& memory, void* target, const void* source, std::size_t bytes, int device,
                             void* queue) {
  if (memory.copy_contents) return memory.copy_contents(target, source, bytes, device, queue);
  memcpy(target, source, bytes);
  return CISTERN_OK;
}

}  // namespace cistern::library
