// The table of allocations and the counters of what is alive.
#include "tests/simcuda/driver/allocation.hpp"

#include <iterator>

#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/settings.hpp"

namespace simcuda {
namespace {

void count_live(const Allocation& allocation, long long one) {
  switch (allocation.kind) {
    case MemoryKind::kDevice:
    case MemoryKind::kManaged:
    case MemoryKind::kPool:
    case MemoryKind::kGraph:
      counters.live_allocations += one;
      counters.live_bytes += one * static_cast<long long>(allocation.bytes);
      break;
    case MemoryKind::kPinned:
      counters.live_pinned += one;
      counters.live_pinned_bytes += one * static_cast<long long>(allocation.bytes);
      break;
    default:
      break;
  }
}

}  // namespace

Allocation& AllocationTable::insert(Allocation allocation) {
  allocation.buffer_id = new_id();
  // [documented] Memory that is allocated in a green context is the primary context's.
  if (allocation.context && allocation.context->part_of) allocation.context = allocation.context->part_of;
  if (!allocation.block_id) allocation.block_id = allocation.buffer_id;
  count_live(allocation, 1);
  return by_begin_.insert_or_assign(allocation.begin, std::move(allocation)).first->second;
}

void AllocationTable::erase(uintptr_t begin) {
  const auto found = by_begin_.find(begin);
  if (found == by_begin_.end()) return;
  count_live(found->second, -1);
  by_begin_.erase(found);
}

Allocation* AllocationTable::find(uintptr_t address) {
  auto after = by_begin_.upper_bound(address);
  if (after == by_begin_.begin()) return nullptr;
  Allocation& candidate = std::prev(after)->second;
  return address - candidate.begin < candidate.bytes ? &candidate : nullptr;
}

Allocation* AllocationTable::find_exact(uintptr_t begin) {
  const auto found = by_begin_.find(begin);
  return found == by_begin_.end() ? nullptr : &found->second;
}

bool AllocationTable::overlaps(uintptr_t begin, size_t bytes) const {
  const auto after = by_begin_.lower_bound(begin + bytes);
  if (after == by_begin_.begin()) return false;
  const Allocation& candidate = std::prev(after)->second;
  return candidate.begin + candidate.bytes > begin;
}

bool AllocationTable::covers(uintptr_t begin, size_t bytes) {
  for (const uintptr_t end = begin + bytes; begin < end;) {
    const Allocation* part = find(begin);
    if (!part || !part->readers) return false;
    begin = part->begin + part->bytes;
  }
  return true;
}

}  // namespace simcuda
