// Blocks of more than 1 KiB, up to 32 KiB: nothing is written into one that is free. Also allocate_quickly(), which
// serves all sizes from what the thread has.
//
// Such blocks begin where few lines of the processor's caches can be, so each touch costs. Their page's descriptor has
// a bit for each: blocks in `free_bits` can be handed out, the program has those in `live`, and other threads have
// freed those in `remote`. The rest waits in an array of the owner thread. Frees push to it and allocations pop from
// it, whatever page a block lies in. The descriptors change only when the array is full or empty. Room for blocks that
// join the array is granted in steps. A step counts as bytes to the next sample and as allocations when it is granted;
// unused room is subtracted later. The program's blocks are therefore known at any time, whatever their threads do:
// `live` without `remote`.
//
//   allocate_quickly      small blocks from the list, medium ones from the
//                         array; else null                                   -> allocate_slowly (blocks.cpp)
//   keeps_place           reallocate in place; else false                    -> reallocate (blocks.cpp)
//   free_medium_quickly   a block of the thread's own page that is
//                         live and has no site; else false                   -> deallocate (blocks.cpp)
#pragma once
#include "pool/heap/heap.hpp"
#include "pool/heap/medium_pages.hpp"

namespace cistern::host_pool {

static_assert(alignof(Page) == 64);
inline WaitingBlock waiting_block(const Page& page, unsigned number, void* block) {
  return {~address_of(block), address_of(&page) + number};
}
inline Page& page_of(const WaitingBlock& waiting) {
  return *reinterpret_cast<Page*>(waiting.place & ~std::uintptr_t{63});
}

inline void* take_waiting(Heap& heap, unsigned medium) {
  const std::uint32_t left = heap.waiting[medium] - 1;
  heap.waiting[medium] = left;
  if (left < heap.never_given[medium]) heap.never_given[medium] = left;
  const WaitingBlock& taken = heap.waiting_blocks[medium][left];
  Page& page = page_of(taken);
  page.live = page.live | bit_of(taken.place);
  return reinterpret_cast<void*>(~taken.block);
}

inline void* allocate_medium_quickly(std::size_t bytes) {  // kDirectMax < bytes <= kSmallMax
  HeapLists* const lists = thread_lists;
  const unsigned medium = kMediumOfBytes.of[(bytes - 1) / 128];
  if (!lists->waiting[medium]) return nullptr;  // nor has a thread without a heap
  return take_waiting(*static_cast<Heap*>(lists), medium);
}

// The part of allocate() that the thread's own blocks serve: no system call, no lock. Null: ask allocate().
inline void* allocate_quickly(std::size_t bytes) {
  if (bytes <= kDirectMax) return allocate_small_quickly(bytes);
  return bytes <= kSmallMax ? allocate_medium_quickly(bytes) : nullptr;
}

// The thread's free of a block that is not live any more: the next one that it gets, if there is room.
inline bool add_waiting(const Page& page, unsigned medium, unsigned number, void* block) {
  HeapLists* const lists = thread_lists;
  const std::uint32_t room = lists->room[medium], waiting = lists->waiting[medium];
  if (!room) return false;  // nor has a thread without a heap
  lists->room[medium] = room - 1;
  static_cast<Heap*>(lists)->waiting_blocks[medium][waiting] = waiting_block(page, number, block);
  lists->waiting[medium] = waiting + 1;
  return true;
}

// The same where there is no room: some more, or the block goes back to its page.
void make_room(Page& page, unsigned number, void* block);

// False: ask deallocate().
[[gnu::always_inline]] inline bool free_medium_quickly(void* memory) {
  if (!is_described(slice_number(memory))) return false;
  const auto [page, offset] = spot_of(memory);
  if (page->state != PageState::medium || page->owner.load(std::memory_order_relaxed) != this_thread()) return false;
  const unsigned medium = page->size_class - kFirstMedium;
  const MediumClasses::One& own = kMedium.of[medium];
  const std::uint64_t number = std::uint64_t{offset} * own.inverse >> 32;  // below 64: no page is so long
  if (number * own.bytes != offset) return false;
  const std::uint64_t others =
      page->remote.load(std::memory_order_relaxed) | page->sited.load(std::memory_order_relaxed);
  const std::uint64_t live = page->live;
  if (!((live & ~others) >> number & 1)) return false;
  page->live = live & ~bit_of(number);
  if (!add_waiting(*page, medium, static_cast<unsigned>(number), memory)) [[unlikely]]
    make_room(*page, static_cast<unsigned>(number), memory);
  return true;
}

// Whether a block keeps its place when it gets so many bytes, as far as that is easily seen: a live one of a page of
// small or medium blocks, without a site. False: ask reallocate().
[[gnu::always_inline]] inline bool keeps_place(const void* memory, std::size_t bytes) {
  if (!is_described(slice_number(memory))) return false;
  const auto [page, offset] = spot_of(memory);
  const PageState state = page->state;
  if (state != PageState::small && state != PageState::medium) return false;
  const std::size_t usable = kBytesOfClass.of[page->size_class];
  if (bytes > usable || bytes < usable / 2 || !bytes) return false;
  if (state == PageState::small)
    return static_cast<std::uint32_t>(offset) * page->inverse < page->start_bound &&
           static_cast<const Block*>(memory)->mark != the_pool.window.free_mark;
  const MediumClasses::One& own = kMedium.of[page->size_class - kFirstMedium];
  const std::uint64_t number = std::uint64_t{offset} * own.inverse >> 32;
  const std::uint64_t others =
      page->remote.load(std::memory_order_relaxed) | page->sited.load(std::memory_order_relaxed);
  return number * own.bytes == offset && (page->live & ~others) >> number & 1;
}

// --- medium.cpp
// The owner's free of a live block without a site.
void take_back(Page& page, unsigned number, void* block);
// Allocates a block of the class; null: no memory.
void* allocate_medium(std::size_t bytes, unsigned id);
void format_medium(Page& page);
// As settle().
void settle_medium(Heap& heap, Page& page);
// The blocks that wait go back to their pages.
void put_back_waiting(Heap& heap);
// The heap's thread does not exist any more: nothing waits, and all blocks that are not live can be handed out.
void forget_waiting(Heap& heap, unsigned medium);
void free_what_is_not_live(Page& page);
// As was_never_given(), of a block that is not live.
bool was_never_given_medium(const Page& page, const void* block);

// --- remote.cpp
// By a thread that does not own the page; false: it was freed before.
bool free_remote_medium(Page& page, unsigned number);

}  // namespace cistern::host_pool
