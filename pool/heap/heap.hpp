// Heaps: the pages of one thread, by class. What the fast path (fast_path.hpp) leaves to do is here.
//
// A page is, for its heap,
//   current  the one that the class's list was filled from; at most one per class;
//   partial  in the class's queue: it has free blocks. An empty page stays when it is the only one of its queue: the
//            class will want it again, or another class gets it before new memory is taken;
//   asleep   neither: all its blocks were handed out, or so many that it isn't worth a visit yet.
// The owner's frees count `until` down: a sleeping page reports when enough blocks came back to wake it, a partial one
// when it is empty. Blocks freed by other threads come in batches through the page's `remote` list; whoever makes that
// list non-empty holds the page's token and puts the page into its heap's inbox, and only who takes it from an inbox
// may empty the list (remote.cpp). So a page is never in two inboxes, whoever owns it meanwhile.
//
// The heap of a thread that ended waits for the next thread that starts. A thread that needs a page before takes the
// heap apart: its pages go to the orphanage, heap 0, guarded by a lock, and are adopted class by class before new
// memory is taken (threads.cpp).
#pragma once
#include "pool/base/lock.hpp"
#include "pool/heap/fast_path.hpp"
#include "pool/heap/samples.hpp"

namespace cistern::host_pool {

constexpr unsigned kBatches = 32;
constexpr unsigned kHeapsMax = 1 << 16;
constexpr Slice kAsleep = ~Slice{0};  // Page::next of a sleeping page
// Page::until of a current page: nothing is to be reported.
constexpr std::uint16_t kQuiet = 0x8000;

// A medium block that a thread may hand out. It is not live, and not among the free ones of its page.
struct WaitingBlock {
  std::uintptr_t block;  // complement of its address: it stays when the block has gone to the program, whose pointers
                         // alone are to be found by who looks for what leads to live memory
  std::uintptr_t place;  // its page's descriptor, plus its number there
};
constexpr unsigned kWaitingMax = 64;

// Blocks of one page that this thread freed and whose owner does not know it yet.
struct RemoteBatch {
  Slice page = 0;  // 0: none
  std::uint16_t count = 0;
  Block* first = nullptr;
  Block* last = nullptr;
};

// Of medium classes only `partial`, `handed_out` and `sample_due` are used.
struct ClassPages {
  Slice current = 0;
  Slice partial = 0;
  Block* rest = nullptr;  // of the current page, handed out behind the list: the list was cut at the next sample
  std::uint32_t rest_count = 0;
  std::uint32_t clean_pages = 0;  // made of memory that was not resident, ever
  // Blocks put into the list, ever; medium: to those that wait, and room for more of them.
  std::uint64_t handed_out = 0;
  // As handed_out when the list was last filled with new blocks: while it is the same, none of the list was given yet.
  std::uint64_t handed_out_when_new = 0;
  // The block behind those that were counted towards the next sample is that sample. Drawn for this class: others, and
  // a later thread, count towards one of their own. 0: none is due; else one more than the doublings of its interval.
  std::uint8_t sample_due = 0;
};

struct Heap : HeapLists {
  std::uint16_t id = 0;
  bool in_use = false;
  bool forked_away = false;  // its thread exists in the parent process only
  std::uintptr_t owner = 0;
  Slice pages = 0;  // all of them
  std::atomic<std::uint32_t> page_count{0};
  std::uint64_t kept_empty[2] = {};  // bit per class: its only partial page is empty
  // Bytes to hand out before the next sample or, then `looks_again`, before the pace is looked at. Drawn when a thread
  // gets the heap.
  std::int64_t until_sample = 0;
  bool looks_again = false;
  SamplePace pace;
  std::uint64_t random = 0;
  std::atomic<Slice> inbox{0};
  std::uint64_t moves = 0;      // blocks moved by reallocate, ever
  Heap* next_unused = nullptr;  // or the next heap that was started late
  ClassPages classes[kClasses];
  RemoteBatch batches[kBatches];
  WaitingBlock waiting_blocks[kMediumClasses][kWaitingMax] = {};
};

extern constinit std::atomic<Heap*> heaps[kHeapsMax];
inline Heap* heap_at(unsigned id) { return heaps[id].load(std::memory_order_acquire); }
unsigned heaps_end();  // ids are below

// The calling thread's heap; null: none yet.
inline Heap* this_heap() { return thread_lists == &kNoLists ? nullptr : static_cast<Heap*>(thread_lists); }

// --- heap.cpp
// Fills the class's list with at least one block; false: no memory. `sample_due`, as in ClassPages: instead, the next
// block is one to be sampled.
bool refill(Heap& heap, unsigned id, unsigned& sample_due);
inline void set_handed_out(Page& page, unsigned handed_out, std::uint16_t until) {
  page.until = until;
  page.beyond = static_cast<std::uint16_t>(handed_out - until);
}
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
// all classes. What was left of this one says nothing about them.
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
// Whether the next sample is among so many bytes more; where it is not, they are not counted yet.
inline bool reach_sample(Heap& heap, std::int64_t bytes) {
  while (heap.until_sample < bytes && heap.looks_again) look_at_pace(heap);
  return heap.until_sample < bytes;
}

// The number of the block that starts `offset` bytes into the page of small blocks; kNoBlock: none that exists. The
// product gives the right number for what is a whole multiple of the size, and no number gives another offset.
constexpr unsigned kNoBlock = ~0u;
inline unsigned number_of_block(const Page& page, std::uintptr_t offset) {
  const auto number = static_cast<unsigned>(std::uint64_t{offset} * page.inverse >> 32);
  return number < page.carved && number * kBytesOfClass.of[page.size_class] == offset ? number : kNoBlock;
}
inline unsigned number_of_block(const Page& page, const void* block) {
  return number_of_block(page, address_of(block) - address_of(page_memory(&page)));
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
// What a page is to its heap follows from the blocks handed out now; not for current pages.
void settle(Heap& heap, Page& page, unsigned handed_out);
// Of any page in no queue or in its own: the same, from what it says itself.
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
// Of one that is listed: it waits to be given for the first time. For a message only, so not sure when it says no.
bool was_never_given(const Page& page, const Block* block);
void flush_batches(Heap& heap);
// Puts what others freed into the heap's pages; true: there was something.
bool read_inbox(Heap& heap);

// --- threads.cpp
// What waits in the heap's lists goes back to the pages.
void put_back_lists(Heap& heap);
Heap* start_heap();  // of the calling thread; null: no memory
// A page of the class with free blocks that a thread left behind; null: none.
Page* adopt(Heap& heap, unsigned id);

// --- blocks.cpp
std::uint64_t large_allocations_ever();
std::uint64_t large_allocated_bytes_ever();  // with what blocks grew by where they lay
std::uint64_t moves_without_heap_ever();

}  // namespace cistern::host_pool
