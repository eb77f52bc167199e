// The fast path of the host pool: what almost every malloc and free of a program runs. Thread-local, no lock, no
// atomic read-modify-write. tests/malloc counts its instructions.
//
//   take(bytes)   pops the calling thread's list of the class; else null           -> allocate (heap.cpp)
//   give(block)   pushes on the page's list, when the page is the caller's, the
//                 block is whole and not free already; else false                  -> deallocate (heap.cpp)
//                 a page with news for its owner                                   -> page_ripe (heap.cpp)
#pragma once
#include "pool/heap/layout.hpp"

namespace cistern::host_pool {

// Small blocks that a thread may hand out, per class; all of one list lie in one page and count as handed out there.
// Of medium ones (medium.hpp): how many wait, how many that it frees may join them, and how many of those that wait,
// the first ones, were never handed out.
struct HeapLists {
  Block* lists[kFirstMedium] = {};
  Relaxed<std::uint32_t> waiting[kMediumClasses] = {}, room[kMediumClasses] = {}, never_given[kMediumClasses] = {};
  std::uint8_t class_of_bytes[kDirectMax + 1] = {};
};

extern const HeapLists kNoLists;  // always empty: of threads that have no heap
// The calling thread's lists: a HeapLists that is part of a Heap, or kNoLists.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local HeapLists* thread_lists;

inline std::uintptr_t this_thread() { return address_of(__builtin_thread_pointer()); }

void page_ripe(Page* page);

[[gnu::always_inline]] inline void* take(std::size_t bytes) {
  HeapLists* const heap = thread_lists;
  if (bytes > kDirectMax) [[unlikely]]
    return nullptr;
  Block*& list = heap->lists[heap->class_of_bytes[bytes]];
  Block* const block = list;
  if (!block) [[unlikely]]
    return nullptr;
  Block* const next = block->next;
  __builtin_prefetch(next, 1);  // for the next call: a block that was freed long ago is in no cache
  list = next;
  block->mark = 0;
  return block;
}

// The owner's free of a block that was checked.
[[gnu::always_inline]] inline void push_free(Page& page, Block* block) {
  block->mark = free_mark;
  block->next = page.free_blocks;
  page.free_blocks = block;
  if (--page.until == 0) [[unlikely]]
    page_ripe(&page);
}

// Stands apart from free_small (blocks.cpp) to be shorter: one comparison asks for a small block that exists, since the
// bound of pages of medium ones is 0.
[[gnu::always_inline]] inline bool give(void* memory) {
  const std::uintptr_t slice = slice_number(memory);
  if (!is_described(slice)) [[unlikely]]
    return false;
  Page* const page = pages + slice;
  if (page->owner.load(std::memory_order_relaxed) != this_thread()) [[unlikely]]
    return false;
  const std::uint32_t offset = static_cast<std::uint16_t>(address_of(memory));
  if (offset * page->inverse >= page->start_bound) [[unlikely]]
    return false;
  auto* const block = static_cast<Block*>(memory);
  if (block->mark == free_mark) [[unlikely]]
    return false;
  push_free(*page, block);
  return true;
}

}  // namespace cistern::host_pool
