// Memory inside pages of blocks that goes back to the system while other blocks of the page are in use.
//
// A page is cut into pieces of 4 KiB. Where all blocks that touch a piece are free, its owner may purge the piece. A
// small block that is free holds a link and a mark, so one that touches a purged piece is in no list. The page counts
// it as handed out, and restores it when nothing else is left to hand out. The mark may be gone, so frees in such a
// page take the slow path (start_bound is 0), which looks here. A medium block holds nothing while it is free: of its
// page only the memory goes.
//
// While the system is asked, foreign code may come back to malloc. Until the call returns, the page (Heap::purging)
// hands out nothing that touches a purged piece, and does not go back to the region.
//
//   purge            trim() for the calling thread's heap and what ended threads left (threads.cpp)
//   purge_if_due     each thread, for its own heap, now and then: what was not used since its last look; and everything
//                    after another thread's trim(), or where memory is scarce (ask_when_scarce)
#pragma once
#include "pool/heap/heap.hpp"

namespace cistern::host_pool {

constexpr std::size_t kPieceBytes = 4096;
using Pieces = std::uint64_t;  // a bit for each piece of a page
static_assert(page_slices(kClasses - 1) * kSliceBytes / kPieceBytes <= 64);

inline const PageNotes* notes_of(const Page& page) {
  const Slice slice = slice_of(&page);
  const PageNotes* const notes = the_pool.purges.notes[slice / kNotesTogether].load(std::memory_order_acquire);
  return notes ? notes + slice % kNotesTogether : nullptr;
}
inline Pieces purged_in(const Page& page) {
  if (!the_pool.purges.pieces.load(std::memory_order_relaxed)) [[likely]]
    return 0;
  const PageNotes* const notes = notes_of(page);
  return notes ? static_cast<Pieces>(notes->purged) : 0;
}
inline std::uint64_t purged_bytes() { return the_pool.purges.pieces.load(std::memory_order_relaxed) * kPieceBytes; }

// --- Pages of small blocks
// Whether the block with that number touches a purged piece, so that it is free.
bool is_purged(const Page& page, unsigned number);
// How many there are.
unsigned count_purged_slowly(const Page& page, Pieces purged);
inline unsigned count_purged(const Page& page) {
  const Pieces purged = purged_in(page);
  return purged ? count_purged_slowly(page, purged) : 0;
}
// Some purged blocks, as a list, and their number; 0: there are none. They count as handed out, as before.
unsigned restore(Page& page, Block*& first);

// --- Pages of medium blocks
// Of the free blocks, those to hand out next: such as touch no purged piece, where there are any.
std::uint64_t resident_first(const Heap& heap, const Page& page);
// These are about to be handed out.
void restore_medium(Page& page, std::uint64_t blocks);

// --- Any page
// Of an empty page: nothing is known of its blocks any more.
void forget_purged(Page& page);

// Gives back what can be of the heap's pages; the bytes. The heap is the calling thread's, or no thread's.
std::uint64_t purge(Heap& heap);
// The same of the pages whose blocks are as they were at the last look.
std::uint64_t purge_quiet(Heap& heap);

// Threads that allocate ask at most once a second, under no lock of ours, whether memory is scarce. Where it is, all
// that is free goes back.
using IsScarce = bool (*)();
void ask_when_scarce(IsScarce is_scarce);
// The same for another thread, with a question of its own. Whether memory is scarce; false: it is too early to ask.
bool relieve_if_scarce(IsScarce is_scarce);

// Whether the heap is to be looked at, and whether memory may be scarce, by the clock.
void note_time(Heap& heap);
void purge_slowly(Heap& heap);
inline bool purge_is_due(const Heap& heap) {
  return heap.look_is_due || heap.question_is_due ||
         heap.trims_seen != the_pool.purges.trims.load(std::memory_order_relaxed);
}
// To be called like do_chosen_work().
inline void purge_if_due() {
  if (Heap* const heap = this_heap(); heap && purge_is_due(*heap)) [[unlikely]]
    purge_slowly(*heap);
}

}  // namespace cistern::host_pool
