// See account.hpp. A page of medium blocks says itself which live. On other pages the live blocks are those handed out,
// less those that wait in a list: the list of the owner thread, the remote list, and batches that are in flight to it.
//
// Threads are at work meanwhile (heap_account.cpp). The region is held: no page becomes something else.
#include "pool/heap/account.hpp"

#include <algorithm>

#include "pool/base/bit_count.hpp"
#include "pool/heap/heap.hpp"
#include "pool/heap/medium.hpp"
#include "pool/heap/purge.hpp"
#include "pool/heap/region.hpp"
#include "pool/heap/samples.hpp"
#include "pool/heap/threads.hpp"

namespace cistern::host_pool {
namespace {

constexpr CountedAtFork& before = the_pool.counted_at_fork;

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
      const auto live = count_bits(live_bits(page) & medium_class(page).all);
      sum.classes[id].page_bytes += page_slices(id) * kSliceBytes;
      sum.classes[id].live_blocks += live;
      sum.classes[id].free_blocks += page_capacity(id) - live;
    } else if ((state == PageState::small || state == PageState::sampled) && id < kClasses) {
      ClassAccount& own = sum.classes[id];
      own.page_bytes += page_slices(id) * kSliceBytes;
      unsigned handed_out = std::min<unsigned>(page.handed_out(), page.carved);
      if (state == PageState::small) {
        const std::uint64_t sent_back = page.remote.load(std::memory_order_relaxed) >> kCountShift;
        handed_out -= static_cast<unsigned>(std::min<std::uint64_t>(sent_back + count_purged(page), handed_out));
        own.live_blocks += handed_out;
      }
      own.free_blocks += page_capacity(id) - handed_out;
    }
  }
}

// A fork left the heap's thread behind, so all its allocations were before the fork. Only blocks that are not live
// count, and those were not live at the fork either.
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

// Threads at work, and one that a signal interrupted, may make a count appear negative.
void cut_off(std::uint64_t& count) {
  if (static_cast<std::int64_t>(count) < 0) count = 0;
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
  sum.large_allocations += the_pool.counts.large_allocations.load(std::memory_order_relaxed);
  sum.large_allocated_bytes += the_pool.counts.large_allocated_bytes.load(std::memory_order_relaxed);
  sum.temporary_blocks = temporary_blocks_ever();
  sum.moves += the_pool.counts.moves.load(std::memory_order_relaxed);
  for (unsigned one = 0; one < kClasses; ++one) {
    ClassAccount& own = sum.classes[one];
    own.live_blocks += live_sampled_blocks(one);  // by the class of the block, which may differ from that of its cell
    own.allocations += sampled_allocations(one);
    cut_off(own.live_blocks);
    cut_off(own.free_blocks);
  }
  return sum;
}

}  // namespace

Account account() {
  reclaim_forked_away();
  Account sum = account_ever(true);
  for (unsigned one = 0; one < kClasses; ++one) {
    sum.classes[one].allocations -= before.allocations[one];
    cut_off(sum.classes[one].allocations);
  }
  sum.large_allocations -= before.large_allocations;
  sum.large_allocated_bytes -= before.large_bytes;
  sum.temporary_blocks -= before.temporary;
  sum.moves -= before.moves;
  sum.inherited_blocks += before.inherited_blocks;
  return sum;
}

// Heaps whose threads the fork left behind stay as they are until they are reclaimed: a child that only calls exec does
// not go through their lists.
void restart_account() {
  const Account now = account_ever(false);
  for (unsigned one = 0; one < kClasses; ++one) before.allocations[one] = now.classes[one].allocations;
  before.large_allocations = now.large_allocations;
  before.large_bytes = now.large_allocated_bytes;
  before.temporary = now.temporary_blocks;
  before.moves = now.moves;
  before.inherited_blocks = now.live_blocks();
}

}  // namespace cistern::host_pool
