// The fast path of the host pool: what almost every malloc and free of a program runs. Thread-local, no lock, no
// atomic read-modify-write. tests/malloc counts its instructions.
//
//   take(bytes)   pops a block of the calling thread's list for the class. Null:
//                 the list is empty, or the class has none                  -> allocate_quickly (medium.hpp),
//                                                                              then allocate_slowly (blocks.cpp)
//   give(block)   pushes the block on its page's list. False: the page is
//                 another thread's, or it is not a block in use             -> free_medium_quickly (medium.hpp),
//                                                                              then deallocate (blocks.cpp)
//                 its page had as many frees as its owner waited for        -> page_ripe (heap.cpp)
#pragma once
#include "pool/heap/pages.hpp"

namespace cistern::host_pool {

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
  block->mark = the_pool.window.free_mark;
  block->next = page.free_blocks;
  page.free_blocks = block;
  if (--page.until == 0) [[unlikely]]
    page_ripe(&page);
}

// A shorter form of free_small (blocks.cpp). One comparison finds that a small block begins there and exists, since
// pages of medium blocks have the bound 0.
[[gnu::always_inline]] inline bool give(void* memory) {
  const std::uintptr_t slice = slice_number(memory);
  if (!is_described(slice)) [[unlikely]]
    return false;
  Page* const page = the_pool.window.pages + slice;
  if (page->owner.load(std::memory_order_relaxed) != this_thread()) [[unlikely]]
    return false;
  const std::uint32_t offset = static_cast<std::uint16_t>(address_of(memory));
  if (offset * page->inverse >= page->start_bound) [[unlikely]]
    return false;
  auto* const block = static_cast<Block*>(memory);
  if (block->mark == the_pool.window.free_mark) [[unlikely]]
    return false;
  push_free(*page, block);
  return true;
}

}  // namespace cistern::host_pool
