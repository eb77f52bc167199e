// See medium.hpp: pages give blocks to the arrays of their thread, and get them back.
#include "pool/heap/medium.hpp"

#include <algorithm>
#include <bit>

#include "pool/base/bit_count.hpp"
#include "pool/heap/purge.hpp"
#include "pool/heap/region.hpp"
#include "pool/heap/samples.hpp"
#include "pool/heap/samples_in_place.hpp"

namespace cistern::host_pool {
namespace {

// The lowest ones first: memory is touched only when nothing else is left.
std::uint64_t lowest(std::uint64_t bits, unsigned count) {
  std::uint64_t rest = bits;
  for (; count > 0 && rest; --count) rest &= rest - 1;
  return bits & ~rest;
}

// The owner's page has one more to hand out.
void put_into_page(Page& page, unsigned number) {
  page.free_bits |= bit_of(number);
  if (page.next == kAsleep || page.free_bits == medium_class(page).all)
    settle_medium(*heap_at(page.heap.load(std::memory_order_relaxed)), page);
}

// As many as can be handed out before the next sample is due, at most `most`; they count as handed out.
unsigned charge(Heap& heap, unsigned medium, unsigned most) {
  const unsigned id = kFirstMedium + medium;
  const auto bytes = static_cast<std::int64_t>(class_bytes(id));
  if (heap.classes[id].sample_due) return 0;
  if (reach_sample(heap, most * bytes)) {
    most = static_cast<unsigned>(std::max<std::int64_t>(heap.until_sample / bytes, 0));
    give_sample_to(heap, id);
  } else {
    heap.until_sample -= most * bytes;
  }
  heap.classes[id].handed_out += most;
  return most;
}

// Whether the next block of the class, of which none wait, is a sample: as sample_due.
unsigned next_is_sample(Heap& heap, unsigned id) {
  if (!heap.classes[id].sample_due && reach_sample(heap, static_cast<std::int64_t>(class_bytes(id))))
    give_sample_to(heap, id);
  return take_due_sample(heap, id);
}

// Fills the empty array of the class; of the first one nothing is charged where it is, or was to be, a sample. False:
// no memory.
bool fetch(Heap& heap, unsigned medium, bool first_is_sample) {
  const unsigned id = kFirstMedium + medium;
  if (!heap.classes[id].partial && heap.inbox.load(std::memory_order_relaxed)) read_inbox(heap);
  Page* const page = next_page(heap, id);
  if (!page) return false;
  if (heap.waiting[medium]) {  // the call of the system came back to malloc, which has filled the array
    settle_medium(heap, *page);
    return true;
  }
  const std::uint64_t can_be_fetched = resident_first(heap, *page);
  if (!can_be_fetched) {
    settle_medium(heap, *page);
    return false;
  }
  const auto there = count_bits(can_be_fetched);
  unsigned uncharged = first_is_sample ? 1 : 0;
  const unsigned charged = charge(heap, medium, std::min<unsigned>(there, kMedium.of[medium].step) - uncharged);
  // A nested malloc may have used up the distance to the next sample: the first block is handed out all the same.
  if (!charged) uncharged = 1;
  heap.classes[id].handed_out += uncharged;
  const unsigned count = uncharged + charged;
  std::uint64_t fetched = lowest(can_be_fetched, count);
  page->free_bits &= ~fetched;
  restore_medium(*page, fetched);
  if (page->free_bits) enqueue(heap, *page);
  constexpr std::uint64_t kBlocks = bit_of(kFetchedShift) - 1;
  const unsigned ever = fetched_ever(*page);
  const std::uint64_t ever_now = std::max<std::uint64_t>(ever, static_cast<unsigned>(std::bit_width(fetched)));
  page->live = (page->live & kBlocks) | ever_now << kFetchedShift;
  heap.never_given[medium] = count_bits(fetched >> ever);  // the last ones, so they go first
  std::uint32_t waiting = 0;
  while (fetched) {
    const auto number = static_cast<unsigned>(std::bit_width(fetched)) - 1;
    fetched &= ~bit_of(number);
    heap.waiting_blocks[medium][waiting++] = waiting_block(*page, number, medium_block(*page, number));
  }
  heap.waiting[medium] = waiting;
  return true;
}

// Where those that wait are all that comes before a sample: the block is the next one, and the last one, which may
// never have been touched, goes back to its page.
void go_before_the_others(Heap& heap, unsigned medium, const WaitingBlock& block) {
  WaitingBlock* const first = heap.waiting_blocks[medium];
  WaitingBlock* const end = first + heap.waiting[medium];
  const WaitingBlock last = *first;  // the newest are behind
  std::copy(first + 1, end, first);
  end[-1] = block;
  if (heap.never_given[medium]) heap.never_given[medium] = heap.never_given[medium] - 1;
  put_into_page(page_of(last), last.place % 64);
}

}  // namespace

void* allocate_medium(std::size_t bytes, unsigned id) {
  const unsigned medium = id - kFirstMedium;
  Heap* heap = this_heap();
  if (!heap) {
    heap = start_heap();
    if (!heap) return nullptr;
  }
  const unsigned due = heap->waiting[medium] ? 0 : samples_every_block() ? 1 : next_is_sample(*heap, id);
  const bool is_sample = due != 0;
  const bool in_place = is_sample && !has_sampled_pages(id);
  if (is_sample && !in_place)
    if (void* const sampled = allocate_sampled(bytes, id, due - 1)) return sampled;
  // An unwinder that allocates may have filled it.
  if (!heap->waiting[medium] && !fetch(*heap, medium, is_sample)) return nullptr;
  void* const block = take_waiting(*heap, medium);
  if (in_place) {
    const auto [page, offset] = spot_of(block);
    sample_in_place(*page, medium_number(*page, offset), bytes, due - 1);
  }
  return block;
}

void make_room(Page& page, unsigned number, void* block) {
  const unsigned medium = page.size_class - kFirstMedium;
  const MediumClasses::One& own = kMedium.of[medium];
  const unsigned waiting = thread_lists->waiting[medium];
  if (Heap* const heap = this_heap(); heap && waiting < own.waiting_max) {
    heap->room[medium] = charge(*heap, medium, std::min<unsigned>(own.waiting_max - waiting, own.step));
    if (add_waiting(page, medium, number, block)) return;
    if (waiting) {
      go_before_the_others(*heap, medium, waiting_block(page, number, block));
      return do_chosen_work();
    }
  }
  put_into_page(page, number);
  do_chosen_work();
}

void take_back(Page& page, unsigned number, void* block) {
  page.live = page.live & ~bit_of(number);
  if (!add_waiting(page, page.size_class - kFirstMedium, number, block)) make_room(page, number, block);
}

void format_medium(Page& page) {
  page.free_bits = medium_class(page).all;
  page.live = 0;
  page.sited.store(0, std::memory_order_relaxed);
}

void settle_medium(Heap& heap, Page& page) {
  if (page.free_bits == medium_class(page).all && heap.purging != slice_of(&page)) return settle_empty(heap, page);
  const auto free_blocks = count_bits(page.free_bits);
  if (page.next == kAsleep && free_blocks >= medium_class(page).awake) enqueue(heap, page);
}

void put_back_waiting(Heap& heap) {
  for (unsigned medium = 0; medium < kMediumClasses; ++medium) {
    const std::uint32_t waiting = heap.waiting[medium];
    forget_waiting(heap, medium);
    for (std::uint32_t i = 0; i < waiting; ++i) {
      const WaitingBlock& back = heap.waiting_blocks[medium][i];
      put_into_page(page_of(back), back.place % 64);
    }
  }
}

__attribute__((no_sanitize("thread"))) bool was_never_given_medium(const Page& page, const void* block) {
  const Heap* const heap = heap_at(page.heap.load(std::memory_order_relaxed));
  if (!heap) return false;
  const unsigned medium = page.size_class - kFirstMedium;
  if (medium >= kMediumClasses) return false;
  for (std::uint32_t i = 0; i < std::min<std::uint32_t>(heap->never_given[medium], kWaitingMax); ++i)
    if (heap->waiting_blocks[medium][i].block == ~address_of(block)) return true;
  return false;
}

void forget_waiting(Heap& heap, unsigned medium) {
  heap.classes[kFirstMedium + medium].handed_out -= heap.waiting[medium] + heap.room[medium];
  heap.waiting[medium] = 0;
  heap.room[medium] = 0;
  heap.never_given[medium] = 0;
  heap.classes[kFirstMedium + medium].sample_due = 0;  // the sample lies behind a distance that is drawn again
}

// Those in `remote` come with it, live or not.
void free_what_is_not_live(Page& page) {
  page.free_bits = medium_class(page).all & ~page.live & ~page.remote.load(std::memory_order_acquire);
}

}  // namespace cistern::host_pool
