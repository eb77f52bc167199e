// See purge.hpp.
#include "pool/heap/purge.hpp"

#include <errno.h>

#include <bit>

#include "pool/base/bit_count.hpp"
#include "pool/base/own_mapping.hpp"
#include "pool/base/page_size.hpp"
#include "pool/base/registered_memory.hpp"
#include "pool/heap/kept_span.hpp"
#include "pool/heap/medium.hpp"
#include "pool/heap/region.hpp"
#include "pool/heap/threads.hpp"

namespace cistern::host_pool {
namespace {

constexpr Purges& purges = the_pool.purges;
constexpr unsigned kPiecesMax = 64;
constexpr unsigned kPagesOfAStep = 64;  // an allocation is not to take long

// Null: no memory.
PageNotes* make_notes(const Page& page) {
  const Slice slice = slice_of(&page);
  std::atomic<PageNotes*>& place = purges.notes[slice / kNotesTogether];
  PageNotes* notes = place.load(std::memory_order_acquire);
  if (!notes) {
    constexpr std::size_t kBytes = kNotesTogether * sizeof(PageNotes);
    auto* const made = static_cast<PageNotes*>(map_own_memory(kBytes));
    if (!made) return nullptr;
    if (place.compare_exchange_strong(notes, made, std::memory_order_acq_rel)) {
      notes = made;
    } else {
      unmap_own_memory(made, kBytes);
    }
  }
  return notes + slice % kNotesTogether;
}

// The page has notes. Never fewer are counted than there are.
void set_purged(const Page& page, Pieces purged) {
  PageNotes& notes = *make_notes(page);
  const Pieces before = notes.purged;
  purges.pieces.fetch_add(count_bits(purged & ~before), std::memory_order_relaxed);
  notes.purged = purged;
  purges.pieces.fetch_sub(count_bits(before & ~purged), std::memory_order_relaxed);
}

constexpr Pieces piece(std::size_t number) { return Pieces{1} << number; }

// The pieces that a block of the page touches.
Pieces pieces_of(unsigned number, std::size_t block_bytes) {
  const std::size_t first = number * block_bytes / kPieceBytes;
  const std::size_t last = ((number + 1) * block_bytes - 1) / kPieceBytes;
  return (~Pieces{0} << first) & (~Pieces{0} >> (kPiecesMax - 1 - last));
}

struct Blocks {
  unsigned first, end;
};
// Those that touch some pieces in a row, of as many as exist.
Blocks blocks_of(unsigned first_piece, unsigned end_piece, std::size_t block_bytes, unsigned exist) {
  const auto first = static_cast<unsigned>(first_piece * kPieceBytes / block_bytes);
  const auto end = static_cast<unsigned>((end_piece * kPieceBytes + block_bytes - 1) / block_bytes);
  return {std::min(first, exist), std::min(end, exist)};
}

// Calls visit(first, end) for each row of pieces.
template <class Visit>
void for_each_row(Pieces pieces, Visit visit) {
  while (pieces) {
    const auto first = static_cast<unsigned>(std::countr_zero(pieces));
    const unsigned end = first + static_cast<unsigned>(std::countr_one(pieces >> first));
    visit(first, end);
    pieces &= end < kPiecesMax ? ~Pieces{0} << end : 0;
  }
}

// The given pieces, as far as they make up whole pages of the system, together with those that are purged already.
Pieces in_system_pages(Pieces pieces, Pieces purged) {
  const std::size_t together = page_bytes() / kPieceBytes;
  Pieces whole = 0;
  for (std::size_t at = 0; at + together <= kPiecesMax; at += together) {
    const Pieces page = (~Pieces{0} >> (kPiecesMax - together)) << at;
    if ((pieces & page) != 0 && (~(pieces | purged) & page) == 0) whole |= pieces & page;
  }
  return whole;
}

// --- What of a page can be purged now. Memory behind the blocks that exist was not touched since the page was made.
Pieces purgeable_small(const Page& page) {
  const std::size_t bytes = class_bytes(page.size_class);
  const unsigned carved = page.carved;
  if ((carved - page.handed_out()) * bytes < kPieceBytes) return 0;
  constexpr unsigned kPieces = kSliceBytes / kPieceBytes;
  std::uint16_t free_blocks[kPieces] = {};
  for (const Block* at = page.free_blocks; at; at = at->next) {
    const std::size_t offset = address_of(at) - address_of(page_memory(&page));
    ++free_blocks[offset / kPieceBytes];
    if ((offset + bytes - 1) / kPieceBytes != offset / kPieceBytes) ++free_blocks[(offset + bytes - 1) / kPieceBytes];
  }
  const Pieces purged = purged_in(page);
  Pieces found = 0;
  for (unsigned i = 0; i < kPieces && i * kPieceBytes < carved * bytes; ++i) {
    if (purged & piece(i)) continue;
    const Blocks touching = blocks_of(i, i + 1, bytes, carved);
    unsigned free = free_blocks[i];
    if (purged) {  // blocks on the edge to a purged piece are in no list
      free += i > 0 && purged & piece(i - 1) && touching.first * bytes < i * kPieceBytes;
      free += purged & piece(i + 1) && touching.end * bytes > (i + 1) * kPieceBytes;
    }
    if (free == touching.end - touching.first) found |= piece(i);
  }
  return in_system_pages(found, purged);
}

Pieces purgeable_medium(const Page& page) {
  const unsigned ever = fetched_ever(page);
  if (!page.free_bits || !ever) return 0;
  const std::size_t bytes = class_bytes(page.size_class);
  Pieces touched = 0, used = 0;
  for (unsigned number = 0; number < ever; ++number) {
    const Pieces own = pieces_of(number, bytes);
    touched |= own;
    if (!(page.free_bits & bit_of(number))) used |= own;
  }
  const Pieces purged = purged_in(page);
  return in_system_pages(touched & ~used & ~purged, purged);
}

// The blocks that touch these pieces leave their list. A child that is forked in between sees by the notes which do
// (threads.cpp).
void take_out(Page& page, Pieces taken) {
  set_purged(page, purged_in(page) | taken);
  if (page.state == PageState::medium) return;
  page.start_bound = 0;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const std::size_t bytes = class_bytes(page.size_class);
  unsigned count = 0;
  for (Block** at = &page.free_blocks; Block* const block = *at;) {
    if (pieces_of(number_of_block(page, block), bytes) & taken) {
      *at = block->next;
      ++count;
    } else {
      at = &block->next;
    }
  }
  set_handed_out(page, page.handed_out() + count, kQuiet);
}

void give_back(const Page& page, Pieces taken) {
  const int saved_errno = errno;
  const CallingSystem calling;
  for_each_row(taken, [&](unsigned first, unsigned end) {
    region_system.give_back(page_memory(&page) + first * kPieceBytes, (end - first) * kPieceBytes);
  });
  errno = saved_errno;
}

// Pages stay where the system is not to be asked, or would not take them.
bool may_purge() {
  return locks_held == 0 && !CallingSystem::is_under_way() && !region_system.keeps_pages &&
         !registered_memory::future_locked.load(std::memory_order_relaxed);
}

// The bytes given back.
std::uint64_t purge_page(Heap& heap, Page& page) {
  const Pieces taken = page.state == PageState::medium ? purgeable_medium(page) : purgeable_small(page);
  if (!taken || !make_notes(page)) return 0;
  if (registered_in(page_memory(&page), page_slices(page.size_class) * kSliceBytes)) return 0;
  take_out(page, taken);
  heap.purging = slice_of(&page);
  give_back(page, taken);
  heap.purging = 0;
  // The nested malloc may have made it current, or forked, and the child may have left it to others.
  if (heap.classes[page.size_class].current != slice_of(&page) && page.heap.load(std::memory_order_relaxed) == heap.id)
    settle(heap, page);
  return count_bits(taken) * kPieceBytes;
}

// The next page of the look, if nothing else ends its life before.
Page& step_to_next(Heap& heap) {
  Page& page = *page_at(heap.to_look_at);
  heap.to_look_at = page.heap_next;
  return page;
}

// Blocks that wait in the heap's lists would hold its pages back. Less was handed out then than was counted towards the
// next sample.
void put_back_all(Heap& heap) {
  read_inbox(heap);
  put_back_lists(heap);
  release_kept(heap);
  begin_distance(heap);
}

bool is_empty(const Page& page) {
  return page.state == PageState::medium ? page.free_bits == medium_class(page).all : page.handed_out() == 0;
}

// Whether the page handed out what it had handed out at the last look.
bool was_quiet(const Page& page) {
  PageNotes* const notes = make_notes(page);
  if (!notes) return false;
  const std::uint64_t now = page.state == PageState::medium ? ~page.free_bits : page.handed_out() + 1;
  const bool quiet = notes->seen == now;
  notes->seen = now;
  return quiet;
}

void begin_look(Heap& heap) {
  const std::uint32_t trims = purges.trims.load(std::memory_order_relaxed);
  heap.look_at_all = heap.trims_seen != trims;
  heap.trims_seen = trims;
  heap.look_is_due = true;
  heap.next_look_ns = region_system.now_ns() + purges.idle_ns.load(std::memory_order_relaxed) / 2;
  flush_batches(heap);
  put_back_all(heap);
  heap.to_look_at = heap.pages;
}

// The bytes given back.
std::uint64_t look_at(Heap& heap, Page& page) {
  if (heap.classes[page.size_class].current == slice_of(&page)) return 0;
  if (!was_quiet(page) && !heap.look_at_all) return 0;
  if (!is_empty(page)) return purge_page(heap, page);
  remove_partial(heap, page);
  retire(heap, page);
  return 0;
}

constexpr std::uint64_t kPauseMinNs = 1'000'000'000, kPauseMaxNs = 64 * kPauseMinNs;

}  // namespace

bool is_purged(const Page& page, unsigned number) {
  const Pieces purged = purged_in(page);
  return purged && purged & pieces_of(number, class_bytes(page.size_class));
}

// No block touches two rows: it is smaller than a piece.
unsigned count_purged_slowly(const Page& page, Pieces purged) {
  unsigned count = 0;
  for_each_row(purged, [&](unsigned first, unsigned end) {
    const Blocks own = blocks_of(first, end, class_bytes(page.size_class), page.carved);
    count += own.end - own.first;
  });
  return count;
}

unsigned restore(Page& page, Block*& first) {
  const std::size_t bytes = class_bytes(page.size_class);
  unsigned count = 0;
  for (Pieces purged = purged_in(page); purged && !count;) {
    const auto lowest = static_cast<unsigned>(std::countr_zero(purged));
    purged &= purged - 1;
    set_purged(page, purged);
    if (!purged) page.start_bound = start_bound(bytes, page.carved);
    const Blocks own = blocks_of(lowest, lowest + 1, bytes, page.carved);
    for (unsigned number = own.end; number-- > own.first;) {
      if (pieces_of(number, bytes) & purged) continue;
      auto* const block = reinterpret_cast<Block*>(page_memory(&page) + number * bytes);
      block->next = first;
      block->mark = the_pool.window.free_mark;
      first = block;
      ++count;
    }
  }
  return count;
}

std::uint64_t resident_first(const Heap& heap, const Page& page) {
  const Pieces purged = purged_in(page);
  if (!purged) return page.free_bits;
  std::uint64_t resident = 0;
  for (std::uint64_t rest = page.free_bits; rest; rest &= rest - 1) {
    const auto number = static_cast<unsigned>(std::countr_zero(rest));
    if (!(pieces_of(number, class_bytes(page.size_class)) & purged)) resident |= bit_of(number);
  }
  return resident || heap.purging == slice_of(&page) ? resident : page.free_bits;
}

void restore_medium(Page& page, std::uint64_t blocks) {
  Pieces purged = purged_in(page);
  if (!purged) return;
  for (; blocks; blocks &= blocks - 1)
    purged &= ~pieces_of(static_cast<unsigned>(std::countr_zero(blocks)), class_bytes(page.size_class));
  set_purged(page, purged);
}

void forget_purged(Page& page) {
  if (!purged_in(page)) return;
  set_purged(page, 0);
  if (page.state == PageState::medium) return;
  page.free_blocks = nullptr;
  page.carved = 0;
  set_handed_out(page, 0, 0);
}

std::uint64_t purge(Heap& heap) {
  put_back_all(heap);
  retire_kept_pages(heap);
  if (!may_purge()) return 0;
  const std::uint8_t forks = the_pool.samples.forks_so_far;
  std::uint64_t bytes = 0;
  for (heap.to_look_at = heap.pages; heap.to_look_at;) {
    bytes += purge_page(heap, step_to_next(heap));
    if (the_pool.samples.forks_so_far != forks) break;  // in a child, which left the heap to others: threads.cpp
  }
  return bytes;
}

std::uint64_t purge_quiet(Heap& heap) {
  put_back_all(heap);
  if (!may_purge()) return 0;
  const std::uint8_t forks = the_pool.samples.forks_so_far;
  heap.look_at_all = false;
  std::uint64_t bytes = 0;
  for (heap.to_look_at = heap.pages; heap.to_look_at && the_pool.samples.forks_so_far == forks;)
    bytes += look_at(heap, step_to_next(heap));
  return bytes;
}

// The first question comes late: most processes end before.
[[gnu::hot]] void ask_when_scarce(IsScarce is_scarce) {
  purges.next_question_ns.store(region_system.now_ns() + kPauseMinNs, std::memory_order_relaxed);
  purges.is_scarce.store(is_scarce, std::memory_order_relaxed);
}

// Where little was free, the next question comes later: it is memory in use that is scarce.
bool relieve_if_scarce(IsScarce is_scarce) {
  constexpr std::uint64_t kLittle = 1 << 20;
  const std::uint64_t now = region_system.now_ns();
  std::uint64_t due = purges.next_question_ns.load(std::memory_order_relaxed);
  std::uint64_t pause = std::max(purges.pause_ns.load(std::memory_order_relaxed), kPauseMinNs);
  if (now < due || !purges.next_question_ns.compare_exchange_strong(due, now + pause)) return false;
  const bool scarce = is_scarce();
  pause = scarce && relieve() < kLittle ? std::min(2 * pause, kPauseMaxNs) : kPauseMinNs;
  purges.pause_ns.store(pause, std::memory_order_relaxed);
  return scarce;
}

void note_time(Heap& heap) {
  const std::uint64_t idle_ns = purges.idle_ns.load(std::memory_order_relaxed);
  const bool asks = purges.is_scarce.load(std::memory_order_relaxed);
  if ((!idle_ns || heap.look_is_due) && !asks) return;
  const std::uint64_t now = region_system.now_ns();
  heap.question_is_due = asks && now >= purges.next_question_ns.load(std::memory_order_relaxed);
  if (!idle_ns) return;
  if (!heap.next_look_ns) heap.next_look_ns = now + idle_ns / 2;
  heap.look_is_due |= now >= heap.next_look_ns;
}

void purge_slowly(Heap& heap) {
  if (region_system.keeps_pages) {
    heap.look_is_due = heap.question_is_due = false;
    heap.trims_seen = purges.trims.load(std::memory_order_relaxed);
  }
  if (!may_purge()) return;
  if (heap.question_is_due) {
    heap.question_is_due = false;
    relieve_if_scarce(purges.is_scarce.load(std::memory_order_relaxed));
    if (!purge_is_due(heap)) return;
  }
  if (!heap.to_look_at) begin_look(heap);
  std::uint64_t bytes = 0;
  for (unsigned i = 0; i < kPagesOfAStep && heap.to_look_at; ++i) bytes += look_at(heap, step_to_next(heap));
  note_returned(heap.look_at_all ? purges.why_trimmed.load(std::memory_order_relaxed) : Why::age, bytes);
  heap.look_is_due = heap.to_look_at != 0;
  if (!heap.look_is_due) look_for_idle();
  do_chosen_work();
}

}  // namespace cistern::host_pool
