// See picture.hpp.
#include "pool/heap/picture.hpp"

#include <algorithm>
#include <cstring>

#include "pool/heap/medium.hpp"
#include "pool/heap/purge.hpp"
#include "pool/heap/region.hpp"
#include "pool/heap/samples.hpp"

namespace cistern::host_pool {
namespace {

constexpr std::uint32_t kSlicesToGrow = 256;

std::uint32_t slices_in_use() { return there_is_a_window() ? region_end() - region_begin() : 0; }

}  // namespace

[[gnu::cold]] std::size_t Picture::table_bytes() {
  static_assert(sizeof(Entry) == kEntryBytes);
  return (slices_in_use() + kSlicesToGrow) * sizeof(Entry);
}

unsigned Picture::blocks_of(const Entry& entry) {
  return entry.state == PageState::large ? 1 : page_capacity(entry.size_class);
}

[[gnu::cold]] __attribute__((no_sanitize("thread"))) bool Picture::take(void* table, std::size_t bytes) {
  entries_ = static_cast<Entry*>(table);
  slices_ = slices_in_use();
  numbers_ = 0;
  if (slices_ * sizeof(Entry) > bytes) return false;
  first_ = address_of(slice_memory(region_begin()));
  bytes_ = std::uintptr_t{slices_} << kSliceShift;
  std::memset(table, 0, slices_ * sizeof(Entry));
  const Slice begin = region_begin(), end = begin + slices_;
  std::uint32_t step;
  for (Slice at = begin; at < end; at += step) {
    const Page& page = *page_at(at);
    const PageState state = page.state;
    step = slices_to_next(page, state, end);
    Entry first{0, numbers_, state, 0, true};
    if (state == PageState::small || state == PageState::medium || state == PageState::sampled) {
      first.size_class = page.size_class;
      if (first.size_class >= kClasses) continue;
      step = std::min<std::uint32_t>(page_slices(first.size_class), end - at);
    } else if (state != PageState::large) {
      continue;
    }
    for (std::uint32_t i = 0; i < step; ++i) {
      entries_[at - begin + i] = first;
      entries_[at - begin + i].to_first = i;
      entries_[at - begin + i].is_first = i == 0;
    }
    numbers_ += blocks_of(first);
  }
  return true;
}

__attribute__((no_sanitize("thread"))) bool Picture::read(const Location& location, PictureBlock& block) const {
  const Entry& entry = entries_[location.first_slice];
  const Page& page = *page_at(region_begin() + location.first_slice);
  const std::uintptr_t memory = first_ + (std::uintptr_t{location.first_slice} << kSliceShift);
  if (page.state != entry.state) return false;
  block.number = location.number;
  block.requested_bytes = 0;
  if (entry.state == PageState::large) {
    block.first = memory;
    block.bytes = std::min<std::size_t>(page.bytes, (slices_ - location.first_slice) * kSliceBytes);
    block.requested_bytes = block.bytes - std::min<std::size_t>(page.slack, block.bytes);
    block.live = true;
    return true;
  }
  if (page.size_class != entry.size_class) return false;
  if (location.index >= (entry.state == PageState::medium ? fetched_ever(page) : page.carved)) return false;
  const std::size_t cell = kBytesOfClass.of[entry.size_class];
  block.first = memory + location.index * cell;
  block.bytes = cell;
  if (entry.state == PageState::sampled) {
    read_sampled(page, location.index, block.bytes, block.requested_bytes, block.live);
  } else if (entry.state == PageState::medium) {
    block.live = live_bits(page) >> location.index & 1;
  } else {
    block.live = !is_purged(page, location.index) && __atomic_load_n(&reinterpret_cast<const Block*>(block.first)->mark,
                                                                     __ATOMIC_RELAXED) != the_pool.window.free_mark;
  }
  return true;
}

bool Picture::find(std::uintptr_t address, PictureBlock& block) const {
  Location location;
  return locate(address, location) && read(location, block) && address - block.first < block.bytes;
}

}  // namespace cistern::host_pool
