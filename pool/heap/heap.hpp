// The slow paths of the heap of one thread (thread_heap.hpp): lists are filled, pages are made, woken and retired. The
// fast path is in fast_path.hpp.
#pragma once
#include "pool/heap/fast_path.hpp"
#include "pool/heap/sampling.hpp"

namespace cistern::host_pool {

inline Heap* heap_at(unsigned id) { return the_pool.threads.by_id[id].load(std::memory_order_acquire); }
// Ids are below.
inline unsigned heaps_end() { return the_pool.threads.made.load(std::memory_order_acquire) + 1; }

// --- heap.cpp
// Fills the class's list with at least one block; false: no memory. True with a `sample_due` above 0, as in ClassPages:
// the list is still empty, and the next block is a sample. The caller takes a sample, else the first of `rest`.
bool refill(Heap& heap, unsigned id, unsigned& sample_due);
// The usual case of refill, short: the thread freed blocks of the current page, and no sample is near. Without a
// current page the descriptor of slice 0 is looked at, which has no blocks.
inline bool refill_from_current(Heap& heap, unsigned id) {
  ClassPages& own = heap.classes[id];
  Page& page = *page_at(own.current);
  if (!page.free_blocks || own.rest) return false;
  const unsigned carved = page.carved, count = carved - page.handed_out();
  const auto bytes = static_cast<std::int64_t>(count * kBytesOfClass.of[id]);
  if (bytes >= heap.until_sample) return false;
  heap.until_sample -= bytes;
  heap.lists[id] = page.free_blocks;
  page.free_blocks = nullptr;
  set_handed_out(page, carved, kQuiet);
  own.handed_out += count;
  return true;
}
// Takes a block for the program.
inline void* pop(Block*& list) {
  Block* const block = list;
  list = block->next;
  block->mark = 0;
  return block;
}
// See allocate_quickly (medium.hpp).
inline void* allocate_small_quickly(std::size_t bytes) {  // bytes <= kDirectMax
  HeapLists* const lists = thread_lists;
  if (lists == &kNoLists) return nullptr;
  const unsigned id = lists->class_of_bytes[bytes];
  if (!lists->lists[id] && !refill_from_current(*static_cast<Heap*>(lists), id)) return nullptr;
  return pop(lists->lists[id]);
}

// The sample that ends the distance now, or what follows, falls to the class: the distance to the next one begins, for
// all classes. The rest of this distance says nothing about the other classes.
inline void give_sample_to(Heap& heap, unsigned id) {
  heap.classes[id].sample_due = static_cast<std::uint8_t>(1 + heap.pace.doublings);
  note_sample(heap);
}
// As sample_due.
inline unsigned take_due_sample(Heap& heap, unsigned id) {
  const unsigned due = heap.classes[id].sample_due;
  heap.classes[id].sample_due = 0;
  return due;
}
void put_to_sleep(Page& page, unsigned handed_out);
// Into the queue of its class, out of it.
void enqueue(Heap& heap, Page& page);
void remove_partial(Heap& heap, Page& page);
// The page in the queue of the class is empty, and the only one there; or no longer.
void mark_kept(Heap& heap, unsigned id, bool kept);
void link_page(Heap& heap, Page& page);
void unlink_page(Heap& heap, Page& page);
// A page with blocks to hand out, in no queue; null: no memory.
Page* next_page(Heap& heap, unsigned id);
// A page whose blocks are all free goes back to the region.
void retire(Heap& heap, Page& page);
void retire_kept_pages(Heap& heap);
// An empty page stays when it is the only one of its queue.
void settle_empty(Heap& heap, Page& page);
// Makes the page current, partial or asleep by the number of blocks that are handed out now. Not for current pages.
void settle(Heap& heap, Page& page, unsigned handed_out);
// The same for any page in no queue or in its own, with the number from its descriptor.
void settle(Heap& heap, Page& page);

// --- remote.cpp
constexpr unsigned kCountShift = 48;  // Page::remote
inline Block* first_remote(std::uint64_t remote) {
  return reinterpret_cast<Block*>(remote & ((std::uint64_t{1} << kCountShift) - 1));
}
void free_remote(Page& page, Block* block);
// Whether a block that carries the mark is free indeed: its content may have been copied from one that was. Looks
// through every list that could hold it; for what is about to be called a double free.
bool is_listed_free(const Page& page, const Block* block);
// Whether a listed block waits to be given for the first time. For a message only, so not sure when it says no.
bool was_never_given(const Page& page, const Block* block);
void flush_batches(Heap& heap);
// Puts what others freed into the heap's pages; true: there was something.
bool read_inbox(Heap& heap);

// --- threads.cpp
// What waits in the heap's lists goes back to the pages.
void put_back_lists(Heap& heap);
Heap* start_heap();  // makes the calling thread's heap; null: no memory
// A page of the class with free blocks that a thread left behind; null: none.
Page* adopt(Heap& heap, unsigned id);

}  // namespace cistern::host_pool
