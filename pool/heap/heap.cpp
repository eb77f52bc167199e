// See heap.hpp: lists filled, pages made, woken and retired, by their owner alone.
#include "pool/heap/heap.hpp"

#include <algorithm>

#include "pool/base/page_size.hpp"
#include "pool/heap/kept_span.hpp"
#include "pool/heap/medium.hpp"
#include "pool/heap/purge.hpp"
#include "pool/heap/region.hpp"
#include "pool/heap/samples.hpp"

namespace cistern::host_pool {

constinit const HeapLists kNoLists{};
constinit thread_local HeapLists* thread_lists = const_cast<HeapLists*>(&kNoLists);

namespace {

constexpr std::size_t kCarveBytes = kLeastPageBytes;
constexpr std::uint32_t kCleanPagesMin = 16;
constexpr std::uint32_t kVisitsOfAClock = 64;  // looking at it takes as long as handing out several blocks

// So many free blocks wake a sleeping page: its next visit is worth it, and little memory waits meanwhile.
unsigned wake_count(const Page& page) { return std::clamp(kCapacityOfClass.of[page.size_class] / 8u, 2u, 16u); }

struct Chain {
  Block* first = nullptr;
  unsigned count = 0;
  bool is_new = false;  // none of these blocks was ever given
};

// New blocks, as many as the smallest page of a system holds: memory is touched only when it is about to be used.
Chain carve(Page& page) {
  const std::size_t bytes = class_bytes(page.size_class);
  const unsigned left = kCapacityOfClass.of[page.size_class] - page.carved;
  const unsigned count = std::min<unsigned>(left, std::max<std::size_t>(kCarveBytes / bytes, 1));
  char* const begin = page_memory(&page) + page.carved * bytes;
  const std::uintptr_t mark = the_pool.window.free_mark;
  Block* next = nullptr;
  for (unsigned i = count; i-- > 0;) {
    auto* const block = reinterpret_cast<Block*>(begin + i * bytes);
    block->next = next;
    block->mark = mark;
    next = block;
  }
  page.carved = static_cast<std::uint16_t>(page.carved + count);
  page.start_bound = start_bound(bytes, page.carved);
  return {next, count, true};
}

// All blocks of the page that can be handed out now; they count as handed out.
Chain take_all(const Heap& heap, Page& page) {
  unsigned handed_out = page.handed_out();
  Chain chain;
  if (page.free_blocks) {
    chain = {page.free_blocks, page.carved - handed_out};
    page.free_blocks = nullptr;
  } else if (heap.purging != slice_of(&page)) {
    chain.count = restore(page, chain.first);
    handed_out -= chain.count;
    if (!chain.count && page.carved < kCapacityOfClass.of[page.size_class]) chain = carve(page);
  }
  set_handed_out(page, handed_out + chain.count, kQuiet);
  return chain;
}

void format_page(Heap& heap, Slice first, unsigned id) {
  Page& page = *page_at(first);
  page.start_bound = 0;
  page.size_class = static_cast<std::uint8_t>(id);
  if (is_medium(id)) {
    format_medium(page);
    page.state = PageState::medium;
  } else {
    page.free_blocks = nullptr;
    page.until = page.beyond = 0;
    page.carved = 0;
    page.inverse = inverse_of(class_bytes(id));
    page.state = PageState::small;
  }
  page.heap.store(heap.id, std::memory_order_relaxed);
  page.next = kAsleep;
  mark_later_slices(page, PageState::interior);
  link_page(heap, page);
  page.owner.store(heap.owner, std::memory_order_relaxed);
}

bool is_kept(const Heap& heap, unsigned id) { return heap.kept_empty[id / 64] >> (id % 64) & 1; }

// The empty page that another class keeps, out of the heap; 0: none of one slice.
Slice take_kept_slice(Heap& heap) {
  for (unsigned id = 0; id < kClasses; ++id) {
    if (id % 64 == 0 && !heap.kept_empty[id / 64]) {
      id += 63;
      continue;
    }
    if (!is_kept(heap, id) || page_slices(id) != 1) continue;
    Page& page = *page_at(heap.classes[id].partial);
    remove_partial(heap, page);
    unlink_page(heap, page);
    return slice_of(&page);
  }
  return 0;
}

Page* new_page(Heap& heap, unsigned id) {
  const unsigned slices = page_slices(id);
  Slice first = slices == 1 ? take_kept_slice(heap) : 0;
  if (!first) {
    Span span = acquire_span(slices);
    if (!span.first && heap.kept.first) {
      release_kept(heap);
      span = acquire_span(slices);
    }
    if (!span.first) return nullptr;
    first = span.first;
    // A class that filled many pages will fill this one too, as far as small blocks go: they leave no gaps.
    if (!span.dirty_slices && ++heap.classes[id].clean_pages > kCleanPagesMin && !is_medium(id))
      make_resident(first, slices);
  }
  format_page(heap, first, id);
  return page_at(first);
}

// The chain becomes the class's list, as far as the next sample allows; the rest stays behind it. Not 0: the next block
// is a sample, as sample_due says.
unsigned deal(Heap& heap, unsigned id, Chain chain) {
  ClassPages& pages_of_class = heap.classes[id];
  const auto bytes = static_cast<std::int64_t>(class_bytes(id));
  pages_of_class.rest = nullptr;
  pages_of_class.rest_count = 0;
  if (!pages_of_class.sample_due && !reach_sample(heap, chain.count * bytes)) {
    heap.until_sample -= chain.count * bytes;
    heap.lists[id] = chain.first;
    return 0;
  }
  const std::int64_t before_sample = pages_of_class.sample_due ? 0 : heap.until_sample / bytes;
  if (!pages_of_class.sample_due) give_sample_to(heap, id);
  if (before_sample <= 0) {
    pages_of_class.rest = chain.first;
    pages_of_class.rest_count = chain.count;
    return take_due_sample(heap, id);
  }
  Block* last = chain.first;
  for (std::int64_t i = 1; i < before_sample; ++i) last = last->next;
  pages_of_class.rest = last->next;
  pages_of_class.rest_count = chain.count - static_cast<unsigned>(before_sample);
  last->next = nullptr;
  heap.lists[id] = chain.first;
  return 0;
}

}  // namespace

void mark_kept(Heap& heap, unsigned id, bool kept) {
  const std::uint64_t bit = std::uint64_t{1} << (id % 64);
  std::uint64_t& bits = heap.kept_empty[id / 64];
  bits = kept ? bits | bit : bits & ~bit;
}

Page* next_page(Heap& heap, unsigned id) {
  if (heap.visits++ % kVisitsOfAClock == 0) note_time(heap);
  ClassPages& pages_of_class = heap.classes[id];
  if (pages_of_class.partial) {
    Page& page = *page_at(pages_of_class.partial);
    remove_partial(heap, page);
    return &page;
  }
  if (Page* const orphan = adopt(heap, id)) return orphan;
  flush_batches(heap);
  return new_page(heap, id);
}

void link_page(Heap& heap, Page& page) {
  page.heap_previous = 0;
  page.heap_next = heap.pages;
  if (heap.pages) page_at(heap.pages)->heap_previous = slice_of(&page);
  std::atomic_signal_fence(std::memory_order_release);  // a child forked in between follows the links
  heap.pages = slice_of(&page);
  heap.page_count.store(heap.page_count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

void unlink_page(Heap& heap, Page& page) {
  if (heap.to_look_at == slice_of(&page)) heap.to_look_at = page.heap_next;
  if (page.heap_next) page_at(page.heap_next)->heap_previous = page.heap_previous;
  if (page.heap_previous) {
    page_at(page.heap_previous)->heap_next = page.heap_next;
  } else {
    heap.pages = page.heap_next;
  }
  heap.page_count.store(heap.page_count.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
}

void put_to_sleep(Page& page, unsigned handed_out) {
  page.next = kAsleep;
  set_handed_out(page, handed_out, static_cast<std::uint16_t>(std::min(wake_count(page), handed_out)));
}

void enqueue(Heap& heap, Page& page) {
  Slice& first = heap.classes[page.size_class].partial;
  if (is_kept(heap, page.size_class)) {
    Page& kept = *page_at(first);
    remove_partial(heap, kept);
    retire(heap, kept);
  }
  push_page(first, page);
}

void remove_partial(Heap& heap, Page& page) {
  mark_kept(heap, page.size_class, false);
  remove_page(heap.classes[page.size_class].partial, page);
  page.next = kAsleep;
}

void retire(Heap& heap, Page& page) {
  unlink_page(heap, page);
  page.owner.store(0, std::memory_order_relaxed);
  page.state = PageState::none;
  mark_later_slices(page, PageState::none);
  release_span(slice_of(&page), page_slices(page.size_class));
}

void retire_kept_pages(Heap& heap) {
  for (unsigned id = 0; id < kClasses; ++id) {
    if (!is_kept(heap, id)) continue;
    Page& page = *page_at(heap.classes[id].partial);
    remove_partial(heap, page);
    retire(heap, page);
  }
}

void settle(Heap& heap, Page& page) {
  if (page.state == PageState::medium) return settle_medium(heap, page);
  settle(heap, page, page.handed_out());
}

void settle_empty(Heap& heap, Page& page) {
  forget_purged(page);
  if (page.next != kAsleep) remove_partial(heap, page);
  if (heap.classes[page.size_class].partial) {
    retire(heap, page);
  } else {
    enqueue(heap, page);
    mark_kept(heap, page.size_class, true);
  }
}

void settle(Heap& heap, Page& page, unsigned handed_out) {
  const bool asleep = page.next == kAsleep;
  const unsigned not_free = handed_out - count_purged(page);
  if (asleep && not_free == kCapacityOfClass.of[page.size_class]) return put_to_sleep(page, handed_out);
  set_handed_out(page, handed_out, static_cast<std::uint16_t>(not_free));
  if (not_free == 0 && heap.purging != slice_of(&page)) return settle_empty(heap, page);
  if (asleep) enqueue(heap, page);
}

void page_ripe(Page* page) {
  Heap& heap = *heap_at(page->heap.load(std::memory_order_relaxed));
  const unsigned handed_out = page->beyond;
  if (heap.classes[page->size_class].current == slice_of(page)) {
    set_handed_out(*page, handed_out, kQuiet);
    return;
  }
  settle(heap, *page, handed_out);
  do_chosen_work();
}

bool refill(Heap& heap, unsigned id, unsigned& sample_due) {
  ClassPages& own = heap.classes[id];
  sample_due = 0;
  if (own.rest) {
    sample_due = deal(heap, id, {own.rest, own.rest_count});
    return true;
  }
  while (true) {
    if (own.current) {
      Page& page = *page_at(own.current);
      if (const Chain chain = take_all(heap, page); chain.count) {
        own.handed_out += chain.count;
        if (chain.is_new) own.handed_out_when_new = own.handed_out;
        sample_due = deal(heap, id, chain);
        return true;
      }
      own.current = 0;
      put_to_sleep(page, page.handed_out());
    }
    if (!own.partial && heap.inbox.load(std::memory_order_relaxed)) read_inbox(heap);
    Page* const page = next_page(heap, id);
    if (!page) return false;
    if (own.current) {  // the call of the system came back to malloc, which has a page by now
      settle(heap, *page);
      return heap.lists[id] || refill(heap, id, sample_due);
    }
    own.current = slice_of(page);
    set_handed_out(*page, page->handed_out(), kQuiet);
  }
}

}  // namespace cistern::host_pool
