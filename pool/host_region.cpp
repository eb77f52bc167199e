// See host_region.hpp.
#include "pool/host_region.hpp"

#include <errno.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <time.h>

#include <algorithm>
#include <cstring>

namespace cistern::host_pool {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20, kGiB = std::uint64_t{1} << 30;

// --- System calls
bool map_memory(void* at, std::size_t bytes) {
  void* mapped = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (mapped == at) return true;
  if (mapped != MAP_FAILED) {  // a kernel that does not know the flag
    munmap(mapped, bytes);
    errno = EEXIST;
  }
  return false;
}

void* reserve_memory(std::size_t bytes) {
  void* reserved = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return reserved == MAP_FAILED ? nullptr : reserved;
}

bool make_memory_writable(void* at, std::size_t bytes) { return mprotect(at, bytes, PROT_READ | PROT_WRITE) == 0; }

// Locked memory cannot be given back: then it is wiped, so that it reads as zero all the same.
void give_memory_back(void* at, std::size_t bytes) {
  if (madvise(at, bytes, MADV_DONTNEED) != 0) std::memset(at, 0, bytes);
}

// Before the kernel looks whether it can move the source it may unmap the destination, so that is made good.
bool move_memory(void* from, void* to, std::size_t bytes) {
  if (mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) == to) return true;
  mmap(to, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  return false;
}

void make_memory_resident(void* at, std::size_t bytes) {
#ifndef MADV_POPULATE_WRITE  // Linux 5.14
#define MADV_POPULATE_WRITE 23
#endif
  madvise(at, bytes, MADV_POPULATE_WRITE);
}

// --- Bins of free spans: exact up to 32 slices, then four per doubling
constexpr unsigned kExactBins = 32;
constexpr unsigned kBins = kExactBins + 4 * 20;

unsigned bin_of(std::uint32_t slices) {
  if (slices <= kExactBins) return slices - 1;
  const auto doubling = static_cast<unsigned>(std::bit_width(slices - 1)) - 1;  // >= 5
  return std::min(kExactBins + (doubling - 5) * 4 + (((slices - 1) >> (doubling - 2)) & 3), kBins - 1);
}

struct Bins {
  Slice first[kBins] = {};
  std::uint64_t used[2] = {};

  void mark(unsigned bin, bool in_use) {
    const std::uint64_t bit = std::uint64_t{1} << (bin % 64);
    used[bin / 64] = in_use ? used[bin / 64] | bit : used[bin / 64] & ~bit;
  }
  // The first bin in use at or behind `bin`; kBins: none.
  unsigned next_used(unsigned bin) const {
    for (unsigned word = bin / 64; word < 2; ++word) {
      std::uint64_t bits = used[word];
      if (word == bin / 64) bits &= ~std::uint64_t{0} << (bin % 64);
      if (bits) return word * 64 + static_cast<unsigned>(std::countr_zero(bits));
    }
    return kBins;
  }
};

enum Sort : std::uint8_t { kClean, kDirty };

constinit Lock region_lock;
constinit Bins bins[2];
constinit Slice window_begin = 0, window_top = 0, window_end = 0;
constinit std::uintptr_t writable_end = 0;  // descriptors below can be written
constinit std::uint64_t mapped_slices = 0, free_slices[2] = {}, peak_in_use = 0, times_grown = 0, times_given_back = 0;
constinit std::uint64_t peak_at_ns = 0;
constinit std::uint64_t idle_limit_ns = 0, next_look_ns = 0;
constinit ChunkAdvice chunk_advice = nullptr;

Sort sort_of(const Page* page) { return static_cast<Sort>(page->size_class); }

void unlink(Page* span) {
  Bins& own = bins[sort_of(span)];
  const unsigned bin = bin_of(span->slices);
  remove_page(own.first[bin], *span);
  if (!own.first[bin]) own.mark(bin, false);
  free_slices[sort_of(span)] -= span->slices;
  page_at(slice_of(span) + span->slices - 1)->state = State::none;
  span->state = State::none;
}

// When a dirty span last grew, in a coarse unit: it lies in a member that free spans have no use for.
constexpr std::uint64_t kStampNs = 16'777'216;
std::uint64_t dirty_since(const Page& span) { return span.heap_next; }

void link(Slice first, std::uint32_t slices, Sort sort) {
  Page* const span = page_at(first);
  Page* const last = page_at(first + slices - 1);
  last->state = State::free_end;
  last->slices = slices - 1;
  last->size_class = sort;
  span->state = State::free;
  span->slices = slices;
  span->size_class = sort;
  if (sort == kDirty && idle_limit_ns) span->heap_next = static_cast<Slice>(region_system.now_ns() / kStampNs);
  Bins& own = bins[sort];
  const unsigned bin = bin_of(slices);
  push_page(own.first[bin], *span);
  own.mark(bin, true);
  free_slices[sort] += slices;
}

// Adds free slices, one with their neighbours of the same sort.
void add_free(Slice first, std::uint32_t slices, Sort sort) {
  if (!slices) return;
  Page* before = page_at(first - 1);
  if (before->state == State::free_end) before -= before->slices;
  if (before->state == State::free && sort_of(before) == sort) {
    first -= before->slices;
    slices += before->slices;
    unlink(before);
  }
  if (first + slices < window_top) {
    Page* const after = page_at(first + slices);
    if (after->state == State::free && sort_of(after) == sort) {
      slices += after->slices;
      unlink(after);
    }
  }
  link(first, slices, sort);
}

// A free span of at least `slices`, unlinked, or null. Of spans that share a bin with smaller ones only some are
// looked at.
Page* find(std::uint32_t slices, Sort sort) {
  constexpr int kLooks = 64;
  const Bins& own = bins[sort];
  unsigned bin = bin_of(slices);
  if (bin >= kExactBins) {
    int looks = kLooks;
    for (Slice at = own.first[bin]; at && looks > 0; at = page_at(at)->next, --looks) {
      if (page_at(at)->slices < slices) continue;
      unlink(page_at(at));
      return page_at(at);
    }
    ++bin;
  }
  bin = own.next_used(bin);
  if (bin == kBins) return nullptr;
  Page* const span = page_at(own.first[bin]);
  unlink(span);
  return span;
}

// --- Giving back
void give_back(Page& span) {
  const std::uint32_t slices = span.slices;
  unlink(&span);
  region_system.give_back(page_memory(&span), slices * kSliceBytes);
  ++times_given_back;
  add_free(slice_of(&span), slices, kClean);
}

// Of the largest dirty span, the end: about `wanted` slices, enough to be worth the call. False: there is none.
bool give_back_of_largest(std::uint64_t wanted) {
  constexpr std::uint64_t kWorthACall = 16;
  for (unsigned word = 2; word-- > 0;) {
    if (!bins[kDirty].used[word]) continue;
    const unsigned bin = word * 64 + 63 - static_cast<unsigned>(std::countl_zero(bins[kDirty].used[word]));
    Page& span = *page_at(bins[kDirty].first[bin]);
    const auto given = static_cast<std::uint32_t>(std::min<std::uint64_t>(std::max(wanted, kWorthACall), span.slices));
    const Slice first = slice_of(&span);
    const std::uint32_t kept = span.slices - given;
    if (kept) {
      unlink(&span);
      link(first, kept, kDirty);
      link(first + kept, given, kDirty);
    }
    give_back(*page_at(first + kept));
    return true;
  }
  return false;
}

std::uint64_t in_use_slices() { return mapped_slices - free_slices[kClean] - free_slices[kDirty]; }

void keep_dirty_at_most(std::uint64_t slices) {
  if (region_system.keeps_pages) return;
  while (free_slices[kDirty] > slices && give_back_of_largest(free_slices[kDirty] - slices)) {
  }
}

void give_back_idle() {
  if (!idle_limit_ns || region_system.keeps_pages) return;
  const std::uint64_t now = region_system.now_ns();
  if (now < next_look_ns) return;
  next_look_ns = now + idle_limit_ns / 4;
  for (unsigned bin = bins[kDirty].next_used(0); bin < kBins; bin = bins[kDirty].next_used(bin + 1)) {
    for (Slice at = bins[kDirty].first[bin]; at;) {
      Page& span = *page_at(at);
      at = span.next;
      if (now - dirty_since(span) * kStampNs >= idle_limit_ns) give_back(span);
    }
  }
}

void note_peak() {
  if (in_use_slices() <= peak_in_use) return;
  peak_in_use = in_use_slices();
  peak_at_ns = region_system.now_ns();
}

std::uint64_t slices_in(std::uint64_t bytes) { return bytes >> kSliceShift; }

// When memory that is not resident is about to be taken: what lies idle is to be little, the peak counts.
std::uint64_t dirty_max_when_growing() { return std::max(slices_in(512 * 1024), in_use_slices() / 16); }
// When memory comes back: the program may soon want as much again.
std::uint64_t dirty_max_when_releasing() { return std::max(slices_in(64 * kMiB), in_use_slices() / 2); }

// --- Growing
// Descriptors are made writable for 64 MiB of memory at a time.
bool prepare_descriptors(std::uintptr_t end) {
  if (end <= writable_end) return true;
  constexpr std::uintptr_t kStep = 1024;
  const std::uintptr_t from = writable_end & ~(kStep - 1);
  const std::uintptr_t to = std::min<std::uintptr_t>((end + kStep - 1) & ~(kStep - 1), window_end);
  if (!region_system.make_writable(pages + from, (to - from) * sizeof(Page))) return false;
  writable_end = to;
  return true;
}

// Where somebody else's mapping is in the way the window is continued behind it.
bool map_at_top(std::uint32_t slices) {
  constexpr int kTries = 64;
  std::uint32_t skip = 1024;
  for (int tries = 0; tries < kTries && window_top + std::uint64_t{slices} <= window_end; ++tries) {
    if (!prepare_descriptors(window_top + std::uint64_t{slices})) return false;
    if (region_system.map(slice_memory(window_top), slices * kSliceBytes)) return true;
    if (errno != EEXIST) return false;
    if (window_end - window_top <= skip) return false;
    window_top += skip;
    skip = std::min(skip * 2, std::uint32_t{1} << 18);
  }
  return false;
}

// The first slice below the top is never one of ours after a skip: its descriptor has no state.
bool grow(std::uint32_t slices) {
  const std::uint64_t unit = slices_in(region_system.unit_bytes);
  const auto in_units = [&](std::uint64_t number) { return (number + unit - 1) / unit * unit; };
  window_top = static_cast<Slice>(std::min<std::uint64_t>(in_units(window_top), window_end));
  const std::uint64_t chunk = in_units(std::clamp(in_use_slices() / 16, slices_in(4 * kMiB), slices_in(256 * kMiB)));
  const auto rounded = static_cast<std::uint32_t>(
      std::min<std::uint64_t>((slices + chunk - 1) / chunk * chunk, window_end - window_top));
  std::uint32_t mapped = std::max(rounded, slices);
  if (!map_at_top(mapped)) {
    if (mapped == slices || !map_at_top(mapped = slices)) return false;
  }
  if (chunk_advice) chunk_advice(slice_memory(window_top), mapped * kSliceBytes);
  const Slice first = window_top;
  window_top += mapped;
  mapped_slices += mapped;
  ++times_grown;
  add_free(first, mapped, kClean);
  return true;
}

std::uint64_t address_space_limit() {
  rlimit limit;
  return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY ? limit.rlim_cur : ~std::uint64_t{0};
}

std::uint64_t physical_bytes() {
  struct sysinfo info;
  return sysinfo(&info) == 0 ? std::uint64_t{info.totalram} * info.mem_unit : 16 * kGiB;
}

struct Window {
  std::uint64_t begin, end;
};

// The descriptors of everything below the window's end are reserved: 1/1024 of its address. Under a limit of the
// address space the window is low and small.
bool place(const Window& window) {
  const std::uintptr_t slices = slices_in(window.end);
  void* const reserved = region_system.reserve(slices * sizeof(Page));
  if (!reserved) return false;
  pages = static_cast<Page*>(reserved);
  window_begin = window_top = static_cast<Slice>(slices_in(window.begin));
  window_end = static_cast<Slice>(slices);
  writable_end = window_begin;
  return true;
}

std::uint64_t random_word() {
  std::uint64_t words[2] = {0x9e3779b97f4a7c15, 0x2545f4914f6cdd1d};
  if (const auto* given = reinterpret_cast<const char*>(getauxval(AT_RANDOM))) std::memcpy(words, given, sizeof words);
  return (words[0] ^ (words[1] >> 7)) * 0x9e3779b97f4a7c15;
}

bool place_window() {
  const std::uint64_t random = random_word();
  free_mark = static_cast<std::uintptr_t>(random | 1);
  const std::uint64_t limit = address_space_limit();
  const auto somewhere = [&](std::uint64_t begin, std::uint64_t within, std::uint64_t bytes) {
    const std::uint64_t at = begin + (random >> 20) % (within / kMiB) * kMiB;
    return Window{at, at + bytes};
  };
  for (const Window& window : {somewhere(64 * kGiB, 16 * kGiB, 2 * physical_bytes() + 32 * kGiB),
                               somewhere(8 * kGiB, 2 * kGiB, 22 * kGiB), somewhere(1 * kGiB, kGiB, 2 * kGiB)}) {
    if (window.end / 1024 <= limit / 8 && place(window)) return true;
  }
  return false;
}

}  // namespace

std::uint64_t coarse_clock_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

constinit System region_system = {map_memory,       reserve_memory, make_memory_writable,
                                  give_memory_back, move_memory,    make_memory_resident};

bool start_region() {
  Locked hold(region_lock);
  if (slice_limit) return true;
  if (!place_window()) return false;
  slice_limit = window_end;
  return true;
}

Span acquire_span(std::uint32_t slices, std::uint32_t alignment_slices, Prefer prefer) {
  Locked hold(region_lock);
  give_back_idle();
  const std::uint64_t wanted = std::uint64_t{slices} + alignment_slices - 1;
  if (wanted > window_end - window_begin) return {};
  const auto searched = static_cast<std::uint32_t>(wanted);
  Page* span = find(searched, prefer == Prefer::dirty ? kDirty : kClean);
  if (!span && prefer == Prefer::clean) span = find(searched, kDirty);
  if (!span) {
    keep_dirty_at_most(dirty_max_when_growing());
    span = find(searched, kClean);
  }
  if (!span) {
    if (!grow(searched)) return {};
    span = find(searched, kClean);
  }
  const Sort sort = sort_of(span);
  const Slice found = slice_of(span);
  const std::uint32_t found_slices = span->slices;
  const Slice first = (found + alignment_slices - 1) / alignment_slices * alignment_slices;
  add_free(found, first - found, sort);
  add_free(first + slices, found + found_slices - (first + slices), sort);
  note_peak();
  return {first, sort == kClean};
}

bool extend_span(Slice end, std::uint32_t more, bool& zeroed) {
  Locked hold(region_lock);
  if (end >= window_top) return false;
  Page* const after = page_at(end);
  if (after->state != State::free || after->slices < more) return false;
  const Sort sort = sort_of(after);
  const std::uint32_t slices = after->slices;
  unlink(after);
  add_free(end + more, slices - more, sort);
  note_peak();
  zeroed = sort == kClean;
  return true;
}

void release_span(Slice first, std::uint32_t slices) {
  Locked hold(region_lock);
  give_back_idle();
  add_free(first, slices, kDirty);
  keep_dirty_at_most(dirty_max_when_releasing());
}

RegionFigures region_figures() {
  Locked hold(region_lock);
  RegionFigures figures{.mapped_bytes = mapped_slices * kSliceBytes,
                        .in_use_bytes = in_use_slices() * kSliceBytes,
                        .dirty_bytes = free_slices[kDirty] * kSliceBytes,
                        .peak_in_use_bytes = peak_in_use * kSliceBytes,
                        .peak_at_ns = peak_at_ns,
                        .largest_free_bytes = 0,
                        .grown = times_grown,
                        .given_back = times_given_back};
  for (const Bins& own : bins)
    for (unsigned bin = own.next_used(0); bin < kBins; bin = own.next_used(bin + 1))
      for (Slice at = own.first[bin]; at; at = page_at(at)->next)
        figures.largest_free_bytes =
            std::max(figures.largest_free_bytes, page_at(at)->slices * std::uint64_t{kSliceBytes});
  return figures;
}

[[gnu::hot]] void give_back_after(std::uint64_t idle_ns) {
  Locked hold(region_lock);
  idle_limit_ns = idle_ns;
}

std::uint64_t trim_region(std::uint64_t keep_bytes) {
  Locked hold(region_lock);
  const std::uint64_t before = free_slices[kDirty];
  keep_dirty_at_most(slices_in(keep_bytes));
  return (before - free_slices[kDirty]) * kSliceBytes;
}

Slice region_begin() { return window_begin; }
Slice region_end() { return window_top; }

void advise_chunks(ChunkAdvice advice) {
  Locked hold(region_lock);
  chunk_advice = advice;
  if (advice && window_top > window_begin)
    advice(slice_memory(window_begin), (window_top - window_begin) * kSliceBytes);
}

void make_resident(Slice first, std::uint32_t slices) {
  region_system.make_resident(slice_memory(first), slices * kSliceBytes);
}

bool move_pages(void* from, void* to, std::size_t bytes) {
  // Advice sticks to pages and would go with them.
  return !chunk_advice && !region_system.keeps_pages && region_system.move(from, to, bytes);
}

void replace_system(const System& system) {
  Locked hold(region_lock);
  region_system = system;
}

void region_before_fork() { region_lock.lock(); }
void region_after_fork() { region_lock.unlock(); }

}  // namespace cistern::host_pool
