// The blocks of the host pool as they stand in this moment, found by any address inside, for the search that follows
// pointers through them (stats/leaks/). Nothing is believed of what threads at work may be changing, and nothing is
// written, so a child that shares no memory with them may look too, whatever they were doing.
//
// Every block that can exist in a page has a number of its own; numbers of one picture are dense.
#pragma once
#include "pool/heap/layout.hpp"

namespace cistern::host_pool {

struct PictureBlock {
  std::uint32_t number;
  std::uintptr_t first;
  std::size_t bytes;            // usable
  std::size_t requested_bytes;  // 0: not known
  bool live;
};

class Picture {
 public:
  static constexpr std::size_t kEntryBytes = 12;
  // Bytes of a table that take() fills for the memory that is in use by now and, within bounds, soon.
  static std::size_t table_bytes();
  // False: the table is too small. `table` is the caller's and stays in use.
  bool take(void* table, std::size_t bytes);

  // All that the pool has given out lies in here.
  std::uintptr_t first() const { return first_; }
  std::uintptr_t bytes() const { return bytes_; }
  std::uint32_t numbers() const { return numbers_; }  // the numbers of blocks, live or free, are below this

  // Where an address lies: found from the table alone, which stays in the cache.
  struct Location {
    std::uint32_t first_slice, index, number;
  };
  // False: in no block that could be. An address that the pool does not have is in none.
  bool locate(std::uintptr_t address, Location& location) const {
    if (address - first_ >= bytes_) return false;
    const auto slice = static_cast<std::uint32_t>((address - first_) >> kSliceShift);
    const Entry& entry = entries_[slice];
    if (entry.state == PageState::none) return false;
    location.first_slice = slice - entry.to_first;
    location.index = 0;
    location.number = entry.first_number;
    if (entry.state == PageState::large) return true;
    const auto offset =
        static_cast<std::uint32_t>(address - first_ - (std::uint64_t{location.first_slice} << kSliceShift));
    location.index = offset / static_cast<std::uint32_t>(kBytesOfClass.of[entry.size_class]);
    location.number += location.index;
    return location.index < page_capacity(entry.size_class);
  }
  // The block there, live or free; false: it was never made, or the place holds something else by now.
  bool read(const Location& location, PictureBlock& block) const;
  // Both; false also behind the end of a large block.
  bool find(std::uintptr_t address, PictureBlock& block) const;
  // Behind the first block of a page that was never made none was.
  template <class Visit>
  void for_each(Visit visit) const {
    for_each_of([](std::uint32_t) { return true; }, visit);
  }
  // Only blocks with numbers that are wanted: the pages of the others are not even read.
  template <class Wanted, class Visit>
  void for_each_of(Wanted wanted, Visit visit) const {
    PictureBlock block;
    for (std::uint32_t slice = 0; slice < slices_; ++slice)
      if (const Entry& entry = entries_[slice]; entry.is_first)
        for (unsigned i = 0; i < blocks_of(entry); ++i) {
          const std::uint32_t number = entry.first_number + i;
          if (!wanted(number)) continue;
          if (!read({slice, i, number}, block)) break;
          visit(block);
        }
  }

 private:
  struct Entry {
    std::uint32_t to_first;      // slices back to the first of its page
    std::uint32_t first_number;  // of its page
    PageState state;             // none: not in a page
    std::uint8_t size_class;
    bool is_first;
  };

  static unsigned blocks_of(const Entry& entry);

  Entry* entries_ = nullptr;
  std::uint32_t slices_ = 0, numbers_ = 0;
  std::uintptr_t first_ = 0, bytes_ = 0;
};

}  // namespace cistern::host_pool
