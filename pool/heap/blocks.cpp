// See blocks.hpp. Small and medium blocks come from heaps (heap.cpp, medium.cpp), large ones are spans of the region.
//
// A call that the fast path did not serve:
//   allocate     list of the class is empty            -> refill (heap.cpp)
//                1 KiB to 32 KiB                       -> allocate_medium (medium.cpp)
//                more than 32 KiB                      -> allocate_large
//   deallocate   page of another or of an ended thread -> free_remote (remote.cpp)
//                1 KiB to 32 KiB                       -> free_medium
//                large                                 -> free_large -> release_span (region.cpp)
#include "pool/heap/blocks.hpp"

#include <algorithm>
#include <cstring>

#include "pool/base/page_size.hpp"
#include "pool/base/registered_memory.hpp"
#include "pool/heap/heap.hpp"
#include "pool/heap/kept_span.hpp"
#include "pool/heap/medium.hpp"
#include "pool/heap/purge.hpp"
#include "pool/heap/region.hpp"
#include "pool/heap/samples.hpp"
#include "pool/heap/samples_in_place.hpp"

namespace cistern::host_pool {
namespace {

constexpr std::uint64_t kLargestSlices = std::uint64_t{1} << 31;
constexpr std::size_t kMovePagesMin = std::size_t{2} << 20;  // from here on moving pages is faster than copying

// --- Where an address lies
// No page: the address lies neither in a page of blocks nor in the first slice of a large block. Not inlined: the
// callers would be longer with a part of it.
[[gnu::noinline]] Spot find(const void* address) {
  if (!is_in_window(address)) return {};
  const Spot spot = spot_of(address);
  const PageState state = spot.page->state;
  const bool has_blocks = state == PageState::small || state == PageState::medium || state == PageState::large ||
                          state == PageState::sampled;
  return has_blocks ? spot : Spot{};
}

// Whether the address lies below the last slice that was ever mapped. The rest of the window (is_in_window) may have
// descriptors, but has no memory yet.
bool below_window_top(const void* address) {
  const std::uintptr_t slice = slice_number(address);
  return slice >= region_begin() && slice < region_end();
}

// By the thread's heap, if it has one.
void count(std::uint64_t Heap::*in_heap, std::atomic<std::uint64_t>& without_heap, std::uint64_t number) {
  if (Heap* const heap = this_heap()) {
    heap->*in_heap += number;
  } else {
    without_heap.fetch_add(number, std::memory_order_relaxed);
  }
}

// --- Large blocks
std::size_t slices_for(std::size_t bytes) { return (bytes + kSliceBytes - 1) >> kSliceShift; }

// Null: no memory.
Heap* heap_of_this_thread() {
  Heap* const heap = this_heap();
  return heap ? heap : start_heap();
}

void sample_large_block(Page& page, std::size_t bytes) {
  forget_site(page);
  if (!sample_interval_bytes()) return;
  if (Heap* const heap = heap_of_this_thread()) sample_large(*heap, page, bytes);
}

Span memory_for_large(std::uint32_t slices, std::uint32_t alignment_slices, Prefer prefer, std::uint32_t replaced) {
  if (Heap* const heap = this_heap()) {
    if (alignment_slices == 1 && prefer == Prefer::dirty)
      if (const Slice kept = take_kept(*heap, slices)) return {kept, kept, slices};
    release_kept(*heap);
  }
  return acquire_span(slices, alignment_slices, prefer, replaced);
}

Span allocate_large(std::size_t bytes, std::size_t alignment = kSliceBytes, Prefer prefer = Prefer::dirty,
                    std::uint32_t replaced = 0) {
  if (bytes > PTRDIFF_MAX || slices_for(bytes) + slices_for(alignment) > kLargestSlices) return {};
  if (!there_is_a_window() && !start_region()) return {};
  const auto slices = static_cast<std::uint32_t>(slices_for(bytes));
  const auto alignment_slices = static_cast<std::uint32_t>(std::max<std::size_t>(slices_for(alignment), 1));
  const Span span = memory_for_large(slices, alignment_slices, prefer, replaced);
  if (!span.first) return {};
  Page& page = *page_at(span.first);
  page.owner.store(0, std::memory_order_relaxed);
  page.bytes = whole_pages(bytes);
  page.slack = static_cast<std::uint16_t>(page.bytes - bytes);
  page.slices = slices;
  page.is_short = shorten_span(span.first, slices, page.bytes);
  sample_large_block(page, bytes);
  page.state.publish(PageState::large);
  count(&Heap::large_allocations, the_pool.counts.large_allocations, 1);
  count(&Heap::large_allocated_bytes, the_pool.counts.large_allocated_bytes, page.bytes);
  return span;
}

// Null: no memory.
void* memory_of(const Span& span) { return span.first ? slice_memory(span.first) : nullptr; }

Registered registered_in(Slice first, std::uint32_t slices) {
  return cistern::registered_in(slice_memory(first), slices * kSliceBytes);
}

void release(Slice first, std::uint32_t slices) {
  if (registered_in(first, slices)) return release_registered_span(first, slices);
  release_span(first, slices);
}

void keep_or_release(Slice first, std::uint32_t slices) {
  Heap* const heap = this_heap();
  if (!heap || memory_is_tight() || registered_in(first, slices) || !keep_span(*heap, first, slices))
    release(first, slices);
}

void free_large(Page& page) {
  note_large_died(page);
  page.state = PageState::none;
  const Slice first = slice_of(&page);
  if (!page.is_short) return keep_or_release(first, page.slices);
  if (registered_in(first, page.slices).locked) forget_locked(page_memory(&page), page.slices * kSliceBytes);
  release_short_span(first, page.slices);
}

// In place: slices given back, or taken from behind. Not where some are registered: whoever did that hears that a block
// grew by its pages' move, or by their end.
bool resize_large(Page& page, std::size_t bytes) {
  const std::size_t wanted = slices_for(bytes);
  const Slice first = slice_of(&page);
  if (page.is_short) {
    if (bytes <= page.bytes && wanted == page.slices) {
      page.slack = static_cast<std::uint16_t>(page.bytes - bytes);
      sample_resized(page);
      return true;
    }
    if (!make_span_whole(first, page.slices, page.bytes)) return false;
    page.is_short = false;
  }
  if (wanted < page.slices) {
    const auto kept = static_cast<std::uint32_t>(wanted);
    const std::uint32_t dropped = page.slices - kept;
    page.slices = kept;
    release(first + kept, dropped);
  } else if (wanted > page.slices) {
    if (wanted > kLargestSlices || registered_in(first, page.slices).registered) return false;
    if (Heap* const heap = this_heap()) release_kept(*heap);  // it may lie behind
    if (!extend_span(first + page.slices, static_cast<std::uint32_t>(wanted - page.slices))) return false;
    page.slices = static_cast<std::uint32_t>(wanted);
  }
  const std::uint64_t bytes_before = page.bytes;
  page.bytes = whole_pages(bytes);
  page.slack = static_cast<std::uint16_t>(page.bytes - bytes);
  if (page.bytes > bytes_before)
    count(&Heap::large_allocated_bytes, the_pool.counts.large_allocated_bytes, page.bytes - bytes_before);
  sample_resized(page);
  return true;
}

// The block grows and cannot grow where it lies. Its pages move as a whole, so that the old place reads as zero. But if
// the block grows by much, resident memory that has room for all of it saves more than copying costs.
void* move_large(Page& page, std::size_t bytes) {
  if (page.bytes < kMovePagesMin || !can_move_pages() || !may_be_moved(page_memory(&page), page.bytes)) return nullptr;
  const bool much = bytes - page.bytes >= page.bytes / 4;
  Span span = much ? allocate_large(bytes, kSliceBytes, Prefer::dirty_only, page.slices) : Span{};
  const bool copied = span.first;
  if (!copied) span = allocate_large(bytes, kSliceBytes, Prefer::clean, page.slices);
  if (!span.first) return nullptr;
  if (!copied && move_pages(page_memory(&page), slice_memory(span.first), page.slices * kSliceBytes)) {
    note_large_died(page);
    page.state = PageState::none;
    release_clean_span(slice_of(&page), page.slices);
  } else {
    std::memcpy(slice_memory(span.first), page_memory(&page), page.bytes);
    free_large(page);
  }
  count(&Heap::moves, the_pool.counts.moves, 1);  // it lives on: not one more allocation
  return slice_memory(span.first);
}

// --- Small and medium blocks
Freed free_small(Page& page, void* memory, std::size_t offset) {
  auto* const block = static_cast<Block*>(memory);
  const unsigned number = number_of_block(page, offset);
  if (number == kNoBlock) return Freed::invalid;
  if (is_purged(page, number)) return Freed::double_free;
  if (block->mark == the_pool.window.free_mark && is_listed_free(page, block)) return Freed::double_free;
  if (page.owner.load(std::memory_order_relaxed) != this_thread()) {
    free_remote(page, block);
  } else {
    push_free(page, block);
  }
  return Freed::yes;
}

Freed free_medium(Page& page, void* memory, std::size_t offset) {
  const unsigned number = medium_number(page, offset);
  if (number >= fetched_ever(page)) return Freed::invalid;  // or none
  if (!(live_bits(page) >> number & 1)) return Freed::double_free;
  forget_in_place(page, number);
  if (page.owner.load(std::memory_order_relaxed) == this_thread()) {
    take_back(page, number, memory);
  } else if (!free_remote_medium(page, number)) {
    return Freed::double_free;
  }
  return Freed::yes;
}

// A block of the list's rest, which a due sample cut off.
void* take_rest(Heap& heap, unsigned id) {
  --heap.classes[id].rest_count;
  return pop(heap.classes[id].rest);
}

void* allocate_small(std::size_t bytes, unsigned id);

void* take_sample(Heap& heap, unsigned id, std::size_t bytes, unsigned doublings) {
  if (void* const sampled = allocate_sampled(bytes, id, doublings)) return sampled;
  // An unwinder that allocates may have taken the rest.
  return heap.classes[id].rest ? take_rest(heap, id) : allocate_small(bytes, id);
}

void* allocate_small(std::size_t bytes, unsigned id) {
  if (is_medium(id)) return allocate_medium(bytes, id);
  Heap* const heap = heap_of_this_thread();
  if (!heap) return nullptr;
  if (!heap->lists[id]) {
    if (samples_every_block())
      if (void* const sampled = allocate_sampled(bytes, id, 0)) return sampled;
    unsigned sample_due;
    if (!refill(*heap, id, sample_due)) return nullptr;
    if (sample_due) return samples_every_block() ? take_rest(*heap, id) : take_sample(*heap, id, bytes, sample_due - 1);
  }
  return pop(heap->lists[id]);
}

// The smallest class whose blocks are so aligned wherever they lie in a page; kClasses: none.
unsigned aligned_class(std::size_t alignment, std::size_t bytes) {
  if (bytes > kSmallMax || alignment > kSmallMax) return kClasses;
  unsigned id = class_of(std::max(bytes, alignment));
  while (id < kClasses && class_bytes(id) % alignment != 0) ++id;
  return id;
}

}  // namespace

[[gnu::hot]] void start_sampling(const SamplePolicy& policy) {
  the_pool.samples.policy = policy;
  the_pool.samples.interval_bytes = policy.interval_bytes;
  if (Heap* const heap = this_heap()) {
    put_back_lists(*heap);
    begin_distance(*heap);
  }
}

void* allocate(std::size_t bytes) {
  void* const block = allocate_quickly(bytes);
  return block ? block : allocate_slowly(bytes);
}

// Where every block has a site, none is filled to its end: a pointer just behind what the program has, such as the end
// of a std::vector, leads to no other block (stats/leaks/).
void* allocate_slowly(std::size_t bytes) {
  void* const block = bytes > kSmallMax
                          ? memory_of(allocate_large(bytes))
                          : allocate_small(bytes, class_of(bytes + (samples_every_block() && bytes < kSmallMax)));
  do_chosen_work();
  purge_if_due();
  return block;
}

void* allocate_zeroed(std::size_t bytes) {
  if (bytes > kSmallMax) {
    const Span span = allocate_large(bytes);
    do_chosen_work();
    if (!span.first) return nullptr;
    char* const memory = slice_memory(span.first);
    char* const dirty = span.dirty_slices ? slice_memory(span.dirty_first) : memory + bytes;
    if (dirty < memory + bytes)
      std::memset(dirty, 0, std::min<std::size_t>(span.dirty_slices * kSliceBytes, memory + bytes - dirty));
    return memory;
  }
  void* const block = allocate(bytes);
  if (block) std::memset(block, 0, bytes);
  return block;
}

void* allocate_aligned(std::size_t alignment, std::size_t bytes) {
  if (alignment <= kGranule) return allocate(bytes);
  if (bytes > PTRDIFF_MAX || alignment > PTRDIFF_MAX) return nullptr;
  const unsigned id = aligned_class(alignment, bytes);
  void* const block =
      id < kClasses ? allocate_small(bytes, id) : memory_of(allocate_large(std::max<std::size_t>(bytes, 1), alignment));
  do_chosen_work();
  return block;
}

namespace {

Freed free_block(void* memory) {
  const Spot found = find(memory);
  if (!found.page) return below_window_top(memory) ? Freed::invalid : Freed::foreign;
  switch (found.page->state) {
    case PageState::small:
      return free_small(*found.page, memory, found.offset);
    case PageState::medium:
      return free_medium(*found.page, memory, found.offset);
    case PageState::large:
      if (found.offset) return Freed::invalid;
      free_large(*found.page);
      return Freed::yes;
    case PageState::sampled:
      if (free_sampled(*found.page, found.offset)) return Freed::yes;
      return is_sampled_block(*found.page, found.offset) ? Freed::double_free : Freed::invalid;
    default:
      return Freed::invalid;
  }
}

}  // namespace

Freed deallocate(void* memory) {
  const Freed freed = free_block(memory);
  do_chosen_work();
  return freed;
}

std::size_t usable_bytes(const void* block) {
  if (is_in_window(block)) {
    const Page& page = *page_at(static_cast<Slice>(slice_number(block)));
    if (page.state == PageState::small || page.state == PageState::medium) return kBytesOfClass.of[page.size_class];
  }
  const Spot found = find(block);
  if (!found.page) return 0;
  if (found.page->state == PageState::large) return found.offset ? 0 : found.page->bytes;
  if (found.page->state == PageState::sampled)
    if (const std::size_t bytes = live_sampled_bytes(*found.page, found.offset)) return bytes;
  return class_bytes(found.page->size_class);
}

bool is_live(const void* memory) {
  const Spot found = find(memory);
  if (!found.page) return false;
  if (found.page->state == PageState::large) return found.offset == 0;
  if (found.page->state == PageState::sampled) return live_sampled_bytes(*found.page, found.offset) != 0;
  if (found.page->state == PageState::medium) {
    const unsigned number = medium_number(*found.page, found.offset);
    return number != kNoBlock && live_bits(*found.page) >> number & 1;
  }
  const auto* const block = static_cast<const Block*>(memory);
  const unsigned number = number_of_block(*found.page, found.offset);
  return number != kNoBlock && !is_purged(*found.page, number) &&
         (block->mark != the_pool.window.free_mark || !is_listed_free(*found.page, block));
}

namespace {

// A small block was resized in place.
void note_size(const Spot& found, std::size_t bytes) {
  Page& page = *found.page;
  if (page.state == PageState::sampled) return note_sampled_size(page, found.offset, bytes);
  if (page.state != PageState::medium) return;
  const unsigned number = medium_number(page, found.offset);
  if (number != kNoBlock && is_sampled_in_place(page, number)) note_size_in_place(page, number, bytes);
}

}  // namespace

namespace {

// A program that grows a block by much leaves room in it by itself.
bool grows_by_little(std::size_t usable, std::size_t bytes) {
  return bytes > usable && bytes - usable <= usable / 64 + kGranule;
}

// A block that grows by little for the second time may grow on: it gets a quarter more, where that stays a small or
// medium block.
std::size_t with_room(const void* memory, std::size_t usable, std::size_t bytes) {
  Heap* const heap = this_heap();
  if (bytes > kSmallMax || !heap || !heap->grown.has(memory)) return bytes;
  return std::max(bytes, std::min(usable + usable / 4, kSmallMax));
}

void note_grown(const void* moved) {
  if (Heap* const heap = this_heap()) heap->grown.add(moved);
}

}  // namespace

void* reallocate(void* memory, std::size_t bytes) {
  const Spot found = find(memory);
  const std::size_t usable = usable_bytes(memory);
  // A block of the program's, so it is found: NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage)
  if (found.page->state == PageState::large && bytes > kSmallMax) {
    if (bytes <= PTRDIFF_MAX && resize_large(*found.page, bytes)) {
      do_chosen_work();
      return memory;
    }
    if (void* const moved = move_large(*found.page, bytes)) {
      do_chosen_work();
      return moved;
    }
  } else if (bytes <= usable && (bytes >= usable / 2 || usable <= 64)) {
    note_size(found, bytes);
    return memory;
  }
  const bool grows_on = grows_by_little(usable, bytes);
  const std::size_t roomy = grows_on ? with_room(memory, usable, bytes) : bytes;
  void* const moved = allocate(roomy);
  if (!moved) return bytes <= usable ? memory : nullptr;
  if (roomy > bytes) note_size(find(moved), bytes);
  if (grows_on) note_grown(moved);
  const std::size_t kept = std::min(bytes, usable);
  std::memcpy(moved, memory, kept);
  deallocate(memory);
  count(&Heap::moves, the_pool.counts.moves, 1);  // it lives on: not one more allocation
  return moved;
}

Whereabouts whereabouts(const void* address) {
  Whereabouts where{.in_pool = below_window_top(address)};
  Spot found = find(address);
  if (!found.page) {
    // Perhaps inside a large block: only its first slice says so.
    if (!where.in_pool) return where;
    const auto slice = static_cast<Slice>(slice_number(address));
    for (Slice at = slice; at >= region_begin(); --at) {
      Page* const page = page_at(at);
      if (page->state == PageState::none) continue;
      if (page->state == PageState::large && at + page->slices > slice) {
        found = {page, address_of(address) - address_of(page_memory(page))};
      }
      break;
    }
    where.free = !found.page;
    if (!found.page) return where;
  }
  if (found.page->state == PageState::large) {
    where.block = page_memory(found.page);
    where.block_bytes = found.page->bytes;
    where.site = found.page->site;
    return where;
  }
  const std::size_t bytes = class_bytes(found.page->size_class);
  const std::size_t index = found.offset / bytes;
  where.free = index >= (found.page->state == PageState::medium ? fetched_ever(*found.page) : found.page->carved);
  if (where.free) return where;
  where.block = page_memory(found.page) + index * bytes;
  where.block_bytes = bytes;
  if (found.page->state == PageState::sampled) {
    const std::size_t live_bytes = live_sampled_bytes(*found.page, index * bytes);
    where.free = !live_bytes;
    if (live_bytes) where.block_bytes = live_bytes;  // the cell may be larger
    where.site = site_of_sampled(*found.page, index * bytes);
  } else if (found.page->state == PageState::medium) {
    where.free = !(live_bits(*found.page) >> index & 1);
    where.never_given = where.free && was_never_given_medium(*found.page, where.block);
    where.site = site_in_place(*found.page, static_cast<unsigned>(index));
  } else {
    const auto* const block = static_cast<const Block*>(where.block);
    where.free = is_purged(*found.page, static_cast<unsigned>(index)) || is_listed_free(*found.page, block);
    where.never_given = where.free && was_never_given(*found.page, block);
  }
  return where;
}

bool reserve_blocks(std::size_t bytes, std::size_t count) {
  if (bytes <= kSmallMax) {
    const unsigned id = class_of(bytes);
    const std::size_t pages = (count + page_capacity(id) - 1) / page_capacity(id);
    return reserve_spans(page_slices(id), pages) == pages;
  }
  const std::uint64_t slices = (bytes + kSliceBytes - 1) / kSliceBytes;
  return slices < kLargestSlices && reserve_spans(static_cast<std::uint32_t>(slices), count) == count;
}

}  // namespace cistern::host_pool
