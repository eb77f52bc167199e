// See residency.hpp.
#include "shim/judging/residency.hpp"

#include <sys/ioctl.h>

#include <algorithm>
#include <cstdint>

#include "pool/base/page_size.hpp"
#include "pool/base/system_call.hpp"
#include "shim/judged_copy/memory_copy.hpp"
#include "shim/judging/plan.hpp"

namespace cistern::judging {
namespace {
using leaks::Residency;

constexpr std::size_t kPagesLookedAt = 4096;
constexpr std::uint64_t kSomething = std::uint64_t{3} << 62, kOfFile = std::uint64_t{1} << 61;  // present or swapped
// A page that nobody may touch, in the midst of a mapping that may be read (MADV_GUARD_INSTALL): stacks have some. Says
// so since Linux 6.15; it counts as swapped.
constexpr std::uint64_t kGuard = std::uint64_t{1} << 58;
constexpr bool has_contents(std::uint64_t entry) { return (entry & kSomething) && !(entry & kGuard); }
struct PageWindow {
  std::uintptr_t first, end;
  Residency residency;
  bool is_there[kPagesLookedAt];
  std::uint64_t theirs[kPagesLookedAt], ours[kPagesLookedAt];
  unsigned char cached[kPagesLookedAt];
};
constinit PageWindow* window = nullptr;
constinit int own_pagemap = -1;

bool read_pagemap(int file, std::uintptr_t first, std::uint64_t* entries, std::size_t count) {
  const auto bytes = static_cast<long>(count * sizeof *entries);
  return system_call(SYS_pread64, static_cast<std::uintptr_t>(file), address_of(entries), count * sizeof *entries,
                     first / page_bytes() * sizeof *entries) == bytes;
}

// PAGEMAP_SCAN of Linux 6.7, which has to be asked for without its header.
struct PageScan {
  struct Found {
    std::uint64_t first, end, kinds;
  };
  static constexpr std::uint64_t kPresent = 1 << 3, kSwapped = 1 << 4, kGuard = 1 << 8;  // the last since 6.16
  std::uint64_t bytes = sizeof(PageScan), flags = 0, first, end, end_of_walk = 0;
  Found* found;
  std::uint64_t found_max = 1, pages_max, inverted = 0, all_of = 0, any_of, told = any_of;
};

// The parent's first run of pages of these kinds, as far as the most that are asked for; none: it begins at `end`.
// False: the kernel does not know how.
bool find_pages(std::uintptr_t first, std::uintptr_t end, std::uint64_t kinds, std::uint64_t pages_max,
                PageScan::Found& found) {
  PageScan scan{.first = first, .end = end, .found = &found, .pages_max = pages_max, .any_of = kinds};
  const long count = system_call(SYS_ioctl, static_cast<std::uintptr_t>(parent_pagemap()), _IOWR('f', 16, PageScan),
                                 address_of(&scan));
  if (count <= 0) found = {end, end, 0};
  return count >= 0;
}

// Behind what was never touched, which may be terabytes: the kernel passes by it without a look at each page.
std::uintptr_t first_touched(std::uintptr_t first, std::uintptr_t end) {
  PageScan::Found found;
  return find_pages(first, end, PageScan::kPresent | PageScan::kSwapped, 1, found) ? found.first : first;
}

// What the parent has there and the child has not is fetched.
void look_at_pages(std::uintptr_t first, std::uintptr_t end, Residency residency) {
  const std::size_t count = std::min<std::size_t>(whole_pages(end - first) / page_bytes(), kPagesLookedAt);
  window->first = first;
  window->end = first + count * page_bytes();
  window->residency = residency;
  std::uint64_t *const theirs = window->theirs, *const ours = window->ours;
  std::fill_n(window->is_there, count, true);
  if (residency == Residency::of_file) {
    if (system_call(SYS_mincore, first, count * page_bytes(), address_of(window->cached)) == 0)
      for (std::size_t i = 0; i < count; ++i) window->is_there[i] = window->cached[i] & 1;
    return;
  }
  if (!read_pagemap(parent_pagemap(), first, theirs, count)) return;
  bool any = false;
  for (std::size_t i = 0; i < count; ++i) any |= window->is_there[i] = has_contents(theirs[i]);
  const bool own_known = any && read_pagemap(own_pagemap, first, ours, count);
  const auto is_missing = [&](std::size_t i) {
    return own_known && has_contents(theirs[i]) && !(theirs[i] & kOfFile) && !(ours[i] & kSomething);
  };
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t behind = i;
    while (behind < count && is_missing(behind)) ++behind;
    if (behind == i) continue;
    fetch_from_parent(first + i * page_bytes(), (behind - i) * page_bytes());
    i = behind;
  }
}

}  // namespace

bool prepare_residency() {
  own_pagemap = open_in_copy("/proc/self/pagemap");
  window = static_cast<PageWindow*>(take_in_copy(sizeof(PageWindow)));
  return window;
}

bool can_read_own_pagemap() { return own_pagemap >= 0; }

std::size_t residency_bytes() { return sizeof(PageWindow); }

Touched any_page_touched(std::uintptr_t first, std::uintptr_t end) {
  PageScan::Found found;
  if (!find_pages(first, end, PageScan::kPresent | PageScan::kSwapped, 1, found)) return Touched::unknown;
  return found.first < end ? Touched::yes : Touched::no;
}

AddressRange next_guard(std::uintptr_t first, std::uintptr_t end) {
  PageScan::Found guard{end, end, 0};
  find_pages(first, end, PageScan::kGuard, 0, guard);
  return {guard.first, guard.end};
}

bool next_resident(std::uintptr_t first, std::uintptr_t end, Residency residency, std::uintptr_t& there,
                   std::uintptr_t& there_end) {
  if (residency == Residency::of_judge) {
    there = first;
    there_end = end;
    return there < end;
  }
  for (std::uintptr_t at = page_begin(first); at < end; at = window->end) {
    if (at < window->first || at >= window->end || residency != window->residency) {
      if (residency == Residency::of_pages && (at = first_touched(at, end)) >= end) return false;
      look_at_pages(at, end, residency);
    }
    std::size_t i = (at - window->first) / page_bytes();
    const std::size_t count = (window->end - window->first) / page_bytes();
    while (i < count && !window->is_there[i]) ++i;
    if (i == count) continue;
    there = std::max(first, window->first + i * page_bytes());
    while (i < count && window->is_there[i]) ++i;
    there_end = std::min(end, window->first + i * page_bytes());
    return there < end;
  }
  return false;
}

}  // namespace cistern::judging
