// See account.hpp. A page of medium blocks says itself which live. Of other pages live are those handed out, less those
// that wait in a list: its thread's, the remote list, batches on their way to it.
//
// Threads are at work meanwhile, and of what they change nothing is believed. Numbers are cut to what there can be. Of
// a list only blocks of its page are followed, as many as the page can have, and each link only if its block carries
// the mark of a free one afterwards: a block that was handed out has lost the mark before the program writes to it. The
// region is held: no page becomes something else.
#include "pool/heap/account.hpp"

#include <algorithm>
#include <bit>

#include "pool/heap/heap.hpp"
#include "pool/heap/medium.hpp"
#include "pool/heap/region.hpp"
#include "pool/heap/samples.hpp"
#include "pool/heap/threads.hpp"

namespace cistern::host_pool {
namespace {

constinit std::uint64_t allocations_before[kClasses + 1] = {}, large_bytes_before = 0;  // when forked
constinit std::uint64_t moves_before = 0, inherited_blocks = 0, temporary_before = 0;

}  // namespace

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

const Page& page_within(Slice slice) { return *page_at(slice < region_end() ? slice : 0); }

// Blocks of the list that are the page's. Under the region's lock.
__attribute__((no_sanitize("thread"))) unsigned count_listed(const Page& page, const Block* at) {
  const unsigned most = page.carved;
  unsigned count = 0;
  while (at && count < most && number_of_block(page, at) != kNoBlock) {
    const Block* const next = __atomic_load_n(&at->next, __ATOMIC_ACQUIRE);
    if (__atomic_load_n(&at->mark, __ATOMIC_RELAXED) != free_mark) break;
    ++count;
    at = next;
  }
  return count;
}

__attribute__((no_sanitize("thread"))) void add_pages(Account& sum) {
  const Slice end = region_end();
  std::uint32_t slices;
  for (Slice at = region_begin(); at < end; at += slices) {
    const Page& page = *page_at(at);
    const PageState state = page.state;
    slices = slices_to_next(page, state, end);
    if (state == PageState::large) {
      ++sum.large_blocks;
      sum.large_bytes += std::min<std::uint64_t>(page.bytes, slices * std::uint64_t{kSliceBytes});
    } else if (const unsigned id = page.size_class; state == PageState::medium && is_medium(id) && id < kClasses) {
      const auto live = static_cast<unsigned>(std::popcount(live_bits(page) & medium_class(page).all));
      sum.classes[id].page_bytes += page_slices(id) * kSliceBytes;
      sum.classes[id].live_blocks += live;
      sum.classes[id].free_blocks += page_capacity(id) - live;
    } else if ((state == PageState::small || state == PageState::sampled) && id < kClasses) {
      ClassAccount& own = sum.classes[id];
      own.page_bytes += page_slices(id) * kSliceBytes;
      unsigned handed_out = std::min<unsigned>(page.handed_out(), page.carved);
      if (state == PageState::small) {
        const std::uint64_t sent_back = page.remote.load(std::memory_order_relaxed) >> kCountShift;
        handed_out -= static_cast<unsigned>(std::min<std::uint64_t>(sent_back, handed_out));
        own.live_blocks += handed_out;
      }
      own.free_blocks += page_capacity(id) - handed_out;
    }
  }
}

}  // namespace

__attribute__((no_sanitize("thread"))) unsigned waiting_blocks(const Heap& heap, unsigned id) {
  const ClassPages& own = heap.classes[id];
  const Page& page = page_within(own.current);
  if (page.state != PageState::small || page.size_class != id) return 0;
  return std::min(count_listed(page, heap.lists[id]) + own.rest_count, page_capacity(id));
}

__attribute__((no_sanitize("thread"))) WaitingBatch waiting_blocks(const RemoteBatch& batch) {
  const Page& page = page_within(batch.page);
  const unsigned id = page.size_class;
  if (page.state != PageState::small || id >= kClasses) return {};
  return {id, std::min<unsigned>(batch.count, page.carved)};
}

namespace {

// Blocks in lists and batches count as handed out in their pages; those of lists were not allocated yet.
__attribute__((no_sanitize("thread"))) void add_heap(Account& sum, const Heap& heap) {
  for (unsigned one = 0; one < kClasses; ++one) {
    if (is_medium(one)) {
      const unsigned medium = one - kFirstMedium;
      const std::uint32_t not_given = heap.waiting[medium] + heap.room[medium];
      sum.classes[one].allocations += heap.classes[one].handed_out - not_given;
      continue;
    }
    const unsigned waiting = waiting_blocks(heap, one);
    sum.classes[one].live_blocks -= waiting;
    sum.classes[one].free_blocks += waiting;
    sum.classes[one].allocations += heap.classes[one].handed_out - waiting;
  }
  sum.moves += heap.moves;
  for (const RemoteBatch& batch : heap.batches) {
    const WaitingBatch waiting = waiting_blocks(batch);
    sum.classes[waiting.size_class].live_blocks -= waiting.blocks;
    sum.classes[waiting.size_class].free_blocks += waiting.blocks;
  }
}

// Of a heap whose thread a fork left behind: what it handed out, it did before. Only what is not live counts, and that
// was not live at the fork either.
void add_what_is_not_live(Account& sum, const Heap& heap) {
  Account own;
  add_heap(own, heap);
  for (unsigned one = 0; one < kClasses; ++one) {
    sum.classes[one].live_blocks += own.classes[one].live_blocks;
    sum.classes[one].free_blocks += own.classes[one].free_blocks;
  }
  sum.inherited_blocks += own.live_blocks();  // fewer: the number wraps
}

void add_heaps(Account& sum, bool with_forked_away) {
  for (unsigned id = 1; id < heaps_end(); ++id) {
    const Heap* const heap = heap_at(id);
    if (!heap) continue;
    if (!heap->forked_away)
      add_heap(sum, *heap);
    else if (with_forked_away)
      add_what_is_not_live(sum, *heap);
  }
}

// As account(), in this process and those it was forked from.
Account account_ever(bool with_forked_away) {
  Account sum;
  if (!there_is_a_window()) return sum;
  {
    const RegionHeld held;
    add_pages(sum);
    add_heaps(sum, with_forked_away);
  }
  sum.large_allocations = large_allocations_ever();
  sum.large_allocated_bytes = large_allocated_bytes_ever();
  sum.temporary_blocks = temporary_blocks_ever();
  sum.moves += moves_without_heap_ever();
  for (unsigned one = 0; one < kClasses; ++one) {
    ClassAccount& own = sum.classes[one];
    own.live_blocks += live_sampled_blocks(one);  // of their classes, whatever that of their cell
    own.allocations += sampled_allocations(one);
    // Threads at work may make a count appear negative.
    if (static_cast<std::int64_t>(own.live_blocks) < 0) own.live_blocks = 0;
    if (static_cast<std::int64_t>(own.free_blocks) < 0) own.free_blocks = 0;
  }
  return sum;
}

}  // namespace

Account account() {
  bury_forked_away();
  Account sum = account_ever(true);
  for (unsigned one = 0; one < kClasses; ++one) sum.classes[one].allocations -= allocations_before[one];
  sum.large_allocations -= allocations_before[kClasses];
  sum.large_allocated_bytes -= large_bytes_before;
  sum.temporary_blocks -= temporary_before;
  sum.moves -= moves_before;
  sum.inherited_blocks += inherited_blocks;
  return sum;
}

void shift_account(const std::int64_t (&allocations)[kClasses], std::int64_t live_blocks) {
  for (unsigned one = 0; one < kClasses; ++one) allocations_before[one] += static_cast<std::uint64_t>(allocations[one]);
  inherited_blocks += static_cast<std::uint64_t>(live_blocks);
}

void count_forked_away(const Heap& heap) {
  Account own;
  add_heap(own, heap);
  for (unsigned one = 0; one < kClasses; ++one) allocations_before[one] += own.classes[one].allocations;
  moves_before += own.moves;
  inherited_blocks += own.live_blocks();  // fewer: the number wraps
}

// Heaps whose threads the fork left behind stay as they are until they are buried: a child that only calls exec does
// not go through their lists.
void restart_account() {
  const Account now = account_ever(false);
  for (unsigned one = 0; one < kClasses; ++one) allocations_before[one] = now.classes[one].allocations;
  allocations_before[kClasses] = now.large_allocations;
  large_bytes_before = now.large_allocated_bytes;
  temporary_before = now.temporary_blocks;
  moves_before = now.moves;
  inherited_blocks = now.live_blocks();
}

}  // namespace cistern::host_pool
