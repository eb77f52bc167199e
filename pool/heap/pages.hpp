// Where an address lies in the window of the host pool, and what the descriptor of its page says.
#pragma once
#include "pool/heap/pool.hpp"

namespace cistern::host_pool {

// Not described: the address lies in none.
inline std::uintptr_t slice_number(const void* address) {
  return (address_of(address) - the_pool.window.base) >> kSliceShift;
}
// The limit grows beside its readers; whoever has a block of ours has seen it above the block's slice. No atomic load,
// which compilers do not fold into the comparison.
__attribute__((no_sanitize("thread"))) inline bool is_described(std::uintptr_t slice) {
  return slice < the_pool.window.slice_limit;
}
inline bool there_is_a_window() { return is_described(0); }
// For any address. The place of the window is read after its limit, because another thread may be placing the window.
inline bool is_in_window(const void* address) {
  const std::uintptr_t limit = std::atomic_ref(the_pool.window.slice_limit).load(std::memory_order_acquire);
  return limit && slice_number(address) < limit;
}
inline char* slice_memory(std::uintptr_t slice) {
  return reinterpret_cast<char*>(the_pool.window.base + (slice << kSliceShift));
}
inline Slice slice_of(const Page* page) { return static_cast<Slice>(page - the_pool.window.pages); }
inline char* page_memory(const Page* page) { return slice_memory(slice_of(page)); }
inline Page* page_at(Slice slice) { return the_pool.window.pages + slice; }

// Where an address in a described slice lies: how far behind the first byte of its page of blocks, or of its
// slice where that is in none.
struct Spot {
  Page* page = nullptr;
  std::size_t offset = 0;
};
inline Spot spot_of(const void* address) {
  Page* const page = the_pool.window.pages + slice_number(address);
  const Slice to_first = -Slice{page->state == PageState::interior} & page->to_first;
  return {page - to_first, to_first * kSliceBytes + address_of(address) % kSliceBytes};
}

// --- What several files do with descriptors
// Lists of pages or spans, linked through their members.
inline void push_page(Slice& first, Page& page) {
  page.previous = 0;
  page.next = first;
  if (first) page_at(first)->previous = slice_of(&page);
  first = slice_of(&page);
}
inline void remove_page(Slice& first, Page& page) {
  if (page.next) page_at(page.next)->previous = page.previous;
  if (page.previous) {
    page_at(page.previous)->next = page.next;
  } else {
    first = page.next;
  }
}

// The slices behind the first slice of the page lead to it, or no longer do.
inline void mark_later_slices(Page& page, PageState state) {
  for (unsigned i = 1; i < page_slices(page.size_class); ++i) {
    (&page)[i].state = state;
    (&page)[i].to_first = i;
  }
}

// --- Pages of small blocks
inline void set_handed_out(Page& page, unsigned handed_out, std::uint16_t until) {
  page.until = until;
  page.beyond = static_cast<std::uint16_t>(handed_out - until);
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

}  // namespace cistern::host_pool
