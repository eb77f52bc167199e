// See heap_account.hpp.
//
// Threads are at work meanwhile, so nothing that they may be changing is believed. Numbers are cut to the largest that
// is possible. A list is followed only through blocks of its page, as many as the page can have. A link counts only if
// its block carries the mark of a free block after the link was read: a block that was handed out has lost the mark
// before the program writes to it.
#include "pool/heap/heap_account.hpp"

#include <algorithm>

#include "pool/heap/region.hpp"

namespace cistern::host_pool {

std::uint64_t Account::live_blocks() const {
  std::uint64_t sum = large_blocks;
  for (const ClassAccount& one : classes) sum += one.live_blocks;
  return sum;
}

std::uint64_t Account::live_bytes() const {
  std::uint64_t sum = large_bytes;
  for (unsigned id = 0; id < kClasses; ++id) sum += classes[id].live_blocks * class_bytes(id);
  return sum;
}

std::uint64_t Account::allocations() const {
  std::uint64_t sum = large_allocations - moves;
  for (const ClassAccount& one : classes) sum += one.allocations;
  return sum;
}

std::uint64_t Account::allocated_bytes() const {
  std::uint64_t sum = large_allocated_bytes;
  for (unsigned id = 0; id < kClasses; ++id) sum += classes[id].allocations * class_bytes(id);
  return sum;
}

namespace {

constexpr CountedAtFork& before = the_pool.counted_at_fork;

const Page& page_within(Slice slice) { return *page_at(slice < region_end() ? slice : 0); }

// Blocks of the list that are the page's. Under the region's lock.
__attribute__((no_sanitize("thread"))) unsigned count_listed(const Page& page, const Block* at) {
  const unsigned most = page.carved;
  unsigned count = 0;
  while (at && count < most && number_of_block(page, at) != kNoBlock) {
    const Block* const next = __atomic_load_n(&at->next, __ATOMIC_ACQUIRE);
    if (__atomic_load_n(&at->mark, __ATOMIC_RELAXED) != the_pool.window.free_mark) break;
    ++count;
    at = next;
  }
  return count;
}

}  // namespace

__attribute__((no_sanitize("thread"))) unsigned listed_blocks(const Heap& heap, unsigned id) {
  const ClassPages& own = heap.classes[id];
  const Page& page = page_within(own.current);
  if (page.state != PageState::small || page.size_class != id) return 0;
  return std::min(count_listed(page, heap.lists[id]) + own.rest_count, page_capacity(id));
}

__attribute__((no_sanitize("thread"))) BatchedBlocks batched_blocks(const RemoteBatch& batch) {
  const Page& page = page_within(batch.page);
  const unsigned id = page.size_class;
  if (page.state != PageState::small || id >= kClasses) return {};
  return {id, std::min<unsigned>(batch.count, page.carved)};
}

__attribute__((no_sanitize("thread"))) void add_heap(Account& sum, const Heap& heap) {
  for (unsigned one = 0; one < kClasses; ++one) {
    if (is_medium(one)) {
      const unsigned medium = one - kFirstMedium;
      const std::uint32_t not_given = heap.waiting[medium] + heap.room[medium];
      sum.classes[one].allocations += heap.classes[one].handed_out - not_given;
      continue;
    }
    const unsigned waiting = listed_blocks(heap, one);
    sum.classes[one].live_blocks -= waiting;
    sum.classes[one].free_blocks += waiting;
    sum.classes[one].allocations += heap.classes[one].handed_out - waiting;
  }
  sum.large_allocations += heap.large_allocations;
  sum.large_allocated_bytes += heap.large_allocated_bytes;
  sum.moves += heap.moves;
  for (const RemoteBatch& batch : heap.batches) {
    const BatchedBlocks waiting = batched_blocks(batch);
    sum.classes[waiting.size_class].live_blocks -= waiting.blocks;
    sum.classes[waiting.size_class].free_blocks += waiting.blocks;
  }
}

void shift_account(const std::int64_t (&allocations)[kClasses], std::int64_t live_blocks) {
  for (unsigned one = 0; one < kClasses; ++one) before.allocations[one] += static_cast<std::uint64_t>(allocations[one]);
  before.inherited_blocks += static_cast<std::uint64_t>(live_blocks);
}

void count_forked_away(const Heap& heap) {
  Account own;
  add_heap(own, heap);
  for (unsigned one = 0; one < kClasses; ++one) before.allocations[one] += own.classes[one].allocations;
  before.large_allocations += own.large_allocations;
  before.large_bytes += own.large_allocated_bytes;
  before.moves += own.moves;
  before.inherited_blocks += own.live_blocks();  // fewer: the number wraps
}

}  // namespace cistern::host_pool
