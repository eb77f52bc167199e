// See region.hpp.
#include "pool/heap/region.hpp"

#include <errno.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <optional>

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

// Not by mprotect: a filter of system calls may allow just what the C library's malloc asks for.
bool make_memory_writable(void* at, std::size_t bytes) {
  return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at;
}

// Locked memory cannot be given back: then it is wiped, so that it reads as zero all the same.
void give_memory_back(void* at, std::size_t bytes) {
  if (madvise(at, bytes, MADV_DONTNEED) != 0) std::memset(at, 0, bytes);
}

// Before the kernel looks whether it can move the source it may unmap the destination, so that is made good. Where
// a filter refuses both calls nothing was unmapped.
bool move_memory(void* from, void* to, std::size_t bytes) {
  if (mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) == to) return true;
  make_memory_writable(to, bytes);
  return false;
}

bool unmap_memory(void* at, std::size_t bytes) { return munmap(at, bytes) == 0; }

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
  // The last bin in use below `bin`; kBins: none.
  unsigned last_used_below(unsigned bin) const {
    while (bin-- > 0)
      if (used[bin / 64] >> (bin % 64) & 1) return bin;
    return kBins;
  }
};

enum Sort : std::uint8_t { kClean, kDirty };

constinit Lock region_lock;
constinit Bins bins[2];
constinit Slice window_begin = 0, window_top = 0, window_end = 0;
constinit Slice last_gap = 0;               // see skip
constinit std::uintptr_t writable_end = 0;  // descriptors below can be written
constinit std::uint64_t mapped_slices = 0, free_slices[2] = {}, peak_in_use = 0, times_grown = 0, times_given_back = 0;
constinit std::uint64_t spans_fresh = 0, peak_reserved = 0;
constinit std::uint64_t peak_at_ns = 0;
constinit std::uint64_t idle_limit_ns = 0, next_look_ns = 0;
constinit ChunkAdvice chunk_advice = nullptr;

std::uint64_t slices_in(std::uint64_t bytes) { return bytes >> kSliceShift; }

Sort sort_of(const Page* page) { return static_cast<Sort>(page->sort); }

void unlink(Page* span) {
  Bins& own = bins[sort_of(span)];
  const unsigned bin = bin_of(span->slices);
  remove_page(own.first[bin], *span);
  if (!own.first[bin]) own.mark(bin, false);
  free_slices[sort_of(span)] -= span->slices;
  page_at(slice_of(span) + span->slices - 1)->state = PageState::none;
  span->state = PageState::none;
}

// The unit of Page::dirty_since, when a dirty span last grew.
constexpr std::uint64_t kStampNs = 16'777'216;

void link(Slice first, std::uint32_t slices, Sort sort) {
  Page* const span = page_at(first);
  Page* const last = page_at(first + slices - 1);
  last->state = PageState::free_end;
  last->to_first = slices - 1;
  last->sort = sort;
  span->state = PageState::free;
  span->slices = slices;
  span->sort = sort;
  if (sort == kDirty && idle_limit_ns)
    span->dirty_since = static_cast<std::uint32_t>(region_system.now_ns() / kStampNs);
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
  if (before->state == PageState::free_end) before -= before->to_first;
  if (before->state == PageState::free && sort_of(before) == sort) {
    first -= before->slices;
    slices += before->slices;
    unlink(before);
  }
  if (first + slices < window_top) {
    Page* const after = page_at(first + slices);
    if (after->state == PageState::free && sort_of(after) == sort) {
      slices += after->slices;
      unlink(after);
    }
  }
  link(first, slices, sort);
}

// The smallest free span of at least `slices`, or null. Of spans that share a bin with smaller ones only some are
// looked at.
Page* smallest_fit(std::uint32_t slices, Sort sort) {
  constexpr int kLooks = 64;
  const Bins& own = bins[sort];
  for (unsigned bin = own.next_used(bin_of(slices)); bin < kBins; bin = own.next_used(bin + 1)) {
    Page* best = nullptr;
    int looks = kLooks;
    for (Slice at = own.first[bin]; at && looks > 0; at = page_at(at)->next, --looks) {
      Page* const span = page_at(at);
      if (span->slices >= slices && (!best || span->slices < best->slices)) best = span;
    }
    if (best) return best;
  }
  return nullptr;
}

constexpr std::uint32_t kPageSlicesMax = page_slices(kClasses - 1);

// --- Runs: free spans of both sorts in a row
struct Run {
  Slice first = 0;
  std::uint32_t slices = 0;
};

// The one that ends at `end`, if any.
const Page* free_span_before(Slice end) {
  const Page* last = page_at(end - 1);
  if (last->state == PageState::free_end) last -= last->to_first;
  return last->state == PageState::free ? last : nullptr;
}

Run run_around(const Page& span) {
  Slice first = slice_of(&span), end = first + span.slices;
  while (const Page* before = free_span_before(first)) first = slice_of(before);
  while (end < window_top && page_at(end)->state == PageState::free) end += page_at(end)->slices;
  return {first, end - first};
}

// Where memory is taken from: in the run that starts with the span `run`.
struct Place {
  Slice run = 0, first = 0;
};

// For what no dirty span is large enough for: a place that begins with one, or ends with its run, so that little has to
// be made resident. Only the largest are looked at.
Place mostly_dirty_place(std::uint32_t slices) {
  int looks = 16;
  const Bins& own = bins[kDirty];
  for (unsigned bin = own.last_used_below(kBins); bin < kBins && looks > 0; bin = own.last_used_below(bin))
    for (Slice at = own.first[bin]; at && looks > 0; at = page_at(at)->next, --looks) {
      const Run run = run_around(*page_at(at));
      if (run.slices >= slices) return {run.first, std::min(at, run.first + run.slices - slices)};
    }
  return {};
}

Span carve(const Place& place, std::uint32_t slices) {
  Span taken{.first = place.first};
  const Slice end = place.first + slices;
  for (Slice at = place.run, span_end; at < end; at = span_end) {
    Page* const span = page_at(at);
    const Sort sort = sort_of(span);
    span_end = at + span->slices;
    if (span_end <= place.first) continue;
    const Slice from = std::max(at, place.first), to = std::min(span_end, end);
    unlink(span);
    if (from > at) link(at, from - at, sort);
    if (span_end > to) link(to, span_end - to, sort);
    if (sort == kClean) continue;
    if (!taken.dirty_slices) taken.dirty_first = from;
    taken.dirty_slices = to - taken.dirty_first;
  }
  return taken;
}

// --- Giving back
void give_back(Page& span) {
  const std::uint32_t slices = span.slices;
  unlink(&span);
  region_system.give_back(page_memory(&span), slices * kSliceBytes);
  ++times_given_back;
  add_free(slice_of(&span), slices, kClean);
}

// Which dirty span is the least worth: of those that pages of blocks cannot use up, the smallest; else the largest.
// kBins: there is none.
unsigned least_useful_bin() {
  const unsigned larger = bins[kDirty].next_used(bin_of(kPageSlicesMax + 1));
  return larger < kBins ? larger : bins[kDirty].last_used_below(kBins);
}

// The end of a dirty span: about `wanted` slices, enough to be worth the call. False: there is none.
bool give_back_some(std::uint64_t wanted) {
  constexpr std::uint64_t kWorthACall = 16;
  const unsigned bin = least_useful_bin();
  if (bin == kBins) return false;
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

constinit std::uint64_t reserving = 0;  // slices on their way from clean to dirty
constinit std::uint64_t dirty_min = 0;  // reserved

std::uint64_t in_use_slices() { return mapped_slices - free_slices[kClean] - free_slices[kDirty] - reserving; }

void keep_dirty_at_most(std::uint64_t slices) {
  if (region_system.keeps_pages) return;
  while (free_slices[kDirty] > slices && give_back_some(free_slices[kDirty] - slices)) {
  }
}

// As the C library shortens its heap, and only where addresses are scarce: mapping memory anew costs time.
void unmap_top() {
  if (!region_system.unmap || region_system.unit_bytes != kSliceBytes) return;
  const Page* const last = free_span_before(window_top);
  if (!last) return;
  const Run run = run_around(*last);
  const std::uint64_t kept = std::max(slices_in(kMiB), in_use_slices() / 16);
  if (run.slices < 4 * kept) return;
  const Slice first = run.first + static_cast<Slice>(kept);
  const std::uint32_t slices = window_top - first;
  carve({run.first, first}, slices);
  if (!region_system.unmap(slice_memory(first), slices * kSliceBytes)) return add_free(first, slices, kDirty);
  window_top = first;
  mapped_slices -= slices;
  ++times_given_back;
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
      if (free_slices[kDirty] < dirty_min + span.slices) continue;
      if (now - span.dirty_since * kStampNs >= idle_limit_ns) give_back(span);
    }
  }
}

// --- How much dirty memory is kept
// Of this period and the one before.
constexpr std::uint64_t kPeriodNs = 10'000'000'000;
struct Lately {
  std::uint64_t now = 0, before = 0, period_end_ns = 0;

  void begin_period(std::uint64_t now_ns, std::uint64_t at_first) {
    if (now_ns < period_end_ns) return;
    before = now_ns < period_end_ns + kPeriodNs ? now : at_first;
    now = at_first;
    period_end_ns = now_ns + kPeriodNs;
  }
  std::uint64_t most() const { return std::max(now, before); }
};
constinit Lately in_use_lately;  // the most: what a program wanted not long ago it may want again

void note_peak(std::uint32_t replaced) {
  const std::uint64_t in_use = in_use_slices() - replaced;
  in_use_lately.now = std::max(in_use_lately.now, in_use);
  if (in_use <= peak_in_use) return;
  peak_in_use = in_use;
  peak_at_ns = region_system.now_ns();
}

std::uint64_t recent_peak() {
  in_use_lately.begin_period(region_system.now_ns(), in_use_slices());
  return in_use_lately.most();
}

// When memory that is not resident was taken, what lies idle is to be little. Large blocks of various sizes leave gaps
// that the next one does not fit into, and a page of samples is not resident by choice: with these, all that is
// resident is to be a tenth more than was in use not long ago.
std::uint64_t dirty_max_when_growing(std::uint32_t slices, Prefer prefer) {
  const std::uint64_t little = slices_in(512 << 10);
  if (slices <= kPageSlicesMax && prefer != Prefer::clean) return std::max(little, in_use_slices() / 16);
  const std::uint64_t peak = recent_peak();
  return std::max(little, peak + peak / 10 - in_use_slices());
}

// What was given back as memory came back, and was wanted again within a second, is not given back the next time: some
// programs work in phases. For a period or two, since they may end.
constexpr std::uint64_t kRegretNs = 1'000'000'000;
constinit Lately regretted;                              // slices
constinit std::atomic<std::uint64_t> regrets_end_ns{0};  // 0: there are none
constinit std::uint64_t last_given_back = 0, given_back_ns = 0;

std::uint64_t given_back_within_a_second(std::uint64_t now_ns) {
  return now_ns - given_back_ns > kRegretNs ? 0 : last_given_back;
}

void note_given_back(std::uint64_t slices) {
  const std::uint64_t now_ns = region_system.now_ns();
  last_given_back = given_back_within_a_second(now_ns) + slices;
  given_back_ns = now_ns;
}

// So many slices were taken that had to be made resident.
void note_fresh(std::uint64_t slices) {
  if (!last_given_back) return;
  const std::uint64_t now_ns = region_system.now_ns();
  last_given_back = given_back_within_a_second(now_ns);
  const std::uint64_t wanted_again = std::min(slices, last_given_back);
  if (!wanted_again) return;
  last_given_back -= wanted_again;
  regretted.begin_period(now_ns, 0);
  regretted.now += wanted_again;
  regrets_end_ns.store(regretted.period_end_ns + kPeriodNs, std::memory_order_relaxed);
}

// When memory comes back: the program may soon want as much again.
std::uint64_t dirty_max_when_releasing() {
  const std::uint64_t in_use = in_use_slices(), usual = std::max(slices_in(64 * kMiB), in_use / 2);
  if (!regretted.most()) return usual;
  regretted.begin_period(region_system.now_ns(), 0);
  const std::uint64_t peak = recent_peak(), idle_at_peak = peak - std::min(peak, in_use);
  return std::max(usual, std::min(usual + regretted.most(), idle_at_peak));  // of what was wanted a part had stayed
}

Span take(const Place& place, std::uint32_t slices, Prefer prefer, std::uint32_t replaced) {
  const std::uint64_t clean = free_slices[kClean];
  const Span span = carve(place, slices);
  note_peak(replaced);
  if (free_slices[kClean] < clean) {
    note_fresh(clean - free_slices[kClean]);
    ++spans_fresh;
    peak_reserved = std::max(peak_reserved, mapped_slices - free_slices[kClean]);
  }
  if (free_slices[kClean] < clean) keep_dirty_at_most(std::max(dirty_min, dirty_max_when_growing(slices, prefer)));
  return span;
}

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

// Slices at the top that are not ours: somebody else's mapping is there. The descriptor of the first one has the length
// and leads to the gap before.
void skip(std::uint32_t slices) {
  Page* const gap = page_at(window_top);
  gap->slices = slices;
  gap->next = last_gap;
  last_gap = window_top;
  window_top += slices;
}

// Where somebody else's mapping is in the way the window is continued behind it.
bool map_at_top(std::uint32_t slices) {
  constexpr int kTries = 64;
  std::uint32_t step = 1024;
  for (int tries = 0; tries < kTries && window_top + std::uint64_t{slices} <= window_end; ++tries) {
    if (!prepare_descriptors(window_top + std::uint64_t{slices})) return false;
    if (region_system.map(slice_memory(window_top), slices * kSliceBytes)) return true;
    if (errno != EEXIST) return false;
    if (window_end - window_top <= step) return false;
    skip(step);
    step = std::min(step * 2, std::uint32_t{1} << 18);
  }
  return false;
}

// The first slice below the top is never one of ours after a skip: its descriptor has no state.
bool grow(std::uint32_t slices) {
  const std::uint64_t unit = slices_in(region_system.unit_bytes);
  const auto in_units = [&](std::uint64_t number) { return (number + unit - 1) / unit * unit; };
  const std::uint64_t aligned_top = std::min<std::uint64_t>(in_units(window_top), window_end);
  if (aligned_top > window_top) {
    if (!prepare_descriptors(aligned_top)) return false;
    skip(static_cast<std::uint32_t>(aligned_top - window_top));
  }
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

// For at least `slices`; none: no memory.
Place find_place(std::uint32_t slices, Prefer prefer) {
  const auto of_span = [](const Page* span) { return Place{slice_of(span), slice_of(span)}; };
  const Sort first_choice = prefer == Prefer::clean ? kClean : kDirty;
  if (const Page* span = smallest_fit(slices, first_choice)) return of_span(span);
  if (prefer == Prefer::dirty_only) return {};
  if (prefer == Prefer::clean) {
    if (const Page* span = smallest_fit(slices, kDirty)) return of_span(span);
  } else if (slices > kPageSlicesMax) {
    if (const Place place = mostly_dirty_place(slices); place.run) return place;
  }
  if (const Page* span = smallest_fit(slices, kClean)) return of_span(span);
  if (!grow(slices)) keep_dirty_at_most(0);  // neighbours become one
  const Page* const span = smallest_fit(slices, kClean);
  return span ? of_span(span) : Place{};
}

// --- Spans released while a thread forks: they wait in a stack, linked through their descriptors, for the next thread
// that has the lock. A child forgets them: it may have been cut off with a part of the stack.
constinit std::atomic<Slice> set_aside_first{0};

void set_aside(Slice first, std::uint32_t slices) {
  Page& span = *page_at(first);
  span.slices = slices;
  Slice head = set_aside_first.load(std::memory_order_relaxed);
  do span.next = head;
  while (!set_aside_first.compare_exchange_weak(head, first, std::memory_order_release, std::memory_order_relaxed));
}

void take_back_set_aside() {
  if (!set_aside_first.load(std::memory_order_relaxed)) [[likely]]
    return;
  for (Slice at = set_aside_first.exchange(0, std::memory_order_acquire); at;) {
    const Page& span = *page_at(at);
    const Slice next = span.next;
    add_free(at, span.slices, kDirty);
    at = next;
  }
}

constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

std::uint64_t limit_of(decltype(RLIMIT_AS) resource) {
  rlimit limit;
  return getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY ? limit.rlim_cur : kNoLimit;
}

std::uint64_t physical_bytes() {
  struct sysinfo info;
  return sysinfo(&info) == 0 ? std::uint64_t{info.totalram} * info.mem_unit : 16 * kGiB;
}

struct Limits {
  std::uint64_t address_space, data, physical;
};
constinit std::optional<Limits> known_limits;

Limits limits() {
  return known_limits ? *known_limits : Limits{limit_of(RLIMIT_AS), limit_of(RLIMIT_DATA), physical_bytes()};
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
  const auto [limit, data_limit, physical] = limits();
  if (limit != kNoLimit || data_limit != kNoLimit) region_system.unmap = unmap_memory;
  const auto somewhere = [&](std::uint64_t begin, std::uint64_t within, std::uint64_t bytes) {
    const std::uint64_t at = begin + (random >> 20) % (within / kMiB) * kMiB;
    return Window{at, at + bytes};
  };
  const Window large = somewhere(64 * kGiB, 16 * kGiB, 2 * physical + 32 * kGiB);
  const Window medium = somewhere(8 * kGiB, 2 * kGiB, 22 * kGiB), small = somewhere(1 * kGiB, kGiB, 2 * kGiB);
  const auto descriptors = [](const Window& window) { return window.end / 1024; };
  return (descriptors(large) <= limit / 64 && place(large)) || (descriptors(medium) <= limit / 64 && place(medium)) ||
         (descriptors(small) <= limit / 8 && place(small));
}

}  // namespace

std::uint64_t coarse_clock_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

constinit System region_system = {map_memory,       reserve_memory, make_memory_writable,
                                  give_memory_back, move_memory,    make_memory_resident};

void look_at_limits() { known_limits = limits(); }

bool start_region() {
  const std::atomic_ref<std::uintptr_t> limit(slice_limit);
  if (limit.load(std::memory_order_acquire)) return true;
  const LockedUnlessForking hold(region_lock);
  if (slice_limit) return true;
  if (!hold || !place_window()) return false;
  limit.store(window_end, std::memory_order_release);
  return true;
}

Span acquire_span(std::uint32_t slices, std::uint32_t alignment_slices, Prefer prefer, std::uint32_t replaced) {
  const LockedUnlessForking hold(region_lock);
  if (!hold) return {};
  take_back_set_aside();
  give_back_idle();
  const std::uint64_t wanted = std::uint64_t{slices} + alignment_slices - 1;
  if (wanted > window_end - window_begin) return {};
  const Place place = find_place(static_cast<std::uint32_t>(wanted), prefer);
  if (!place.run) return {};
  const Slice first = (place.first + alignment_slices - 1) / alignment_slices * alignment_slices;
  return take({place.run, first}, slices, prefer, replaced);
}

bool extend_span(Slice end, std::uint32_t more) {
  const LockedUnlessForking hold(region_lock);
  if (!hold || end >= window_top) return false;
  take_back_set_aside();
  if (page_at(end)->state != PageState::free) return false;
  const Run run = run_around(*page_at(end));
  if (run.slices < more) return false;
  take({end, end}, more, Prefer::dirty, 0);
  return true;
}

void release_span(Slice first, std::uint32_t slices) {
  const LockedUnlessForking hold(region_lock);
  if (!hold) return set_aside(first, slices);
  take_back_set_aside();
  give_back_idle();
  add_free(first, slices, kDirty);
  const std::uint64_t idle = free_slices[kDirty];
  keep_dirty_at_most(std::max(dirty_min, dirty_max_when_releasing()));
  if (free_slices[kDirty] < idle) note_given_back(idle - free_slices[kDirty]);
  unmap_top();
}

void end_regrets() {
  const std::uint64_t end_ns = regrets_end_ns.load(std::memory_order_relaxed);
  if (!end_ns || region_system.now_ns() < end_ns) return;
  const LockedUnlessForking hold(region_lock);
  if (!hold || regrets_end_ns.load(std::memory_order_relaxed) != end_ns) return;
  regrets_end_ns.store(0, std::memory_order_relaxed);
  keep_dirty_at_most(std::max(dirty_min, dirty_max_when_releasing()));
}

std::size_t reserve_spans(std::uint32_t slices, std::size_t count) {
  std::size_t made = 0;
  for (; made < count; ++made) {
    Place place;
    {
      Locked hold(region_lock);
      // Not by giving back what is dirty, which is what there is to be more of.
      const Page* const clean = smallest_fit(slices, kClean);
      if (!clean && !grow(slices)) return made;
      if (const Page* const span = clean ? clean : smallest_fit(slices, kClean))
        place = {slice_of(span), slice_of(span)};
      if (!place.run) return made;
      reserving += slices;
      carve(place, slices);
    }
    make_resident(place.first, slices);
    Locked hold(region_lock);
    reserving -= slices;
    dirty_min += slices;
    add_free(place.first, slices, kDirty);
    peak_reserved = std::max(peak_reserved, mapped_slices - free_slices[kClean]);
  }
  return made;
}

void release_clean_span(Slice first, std::uint32_t slices) {
  const LockedUnlessForking hold(region_lock);
  if (!hold) return set_aside(first, slices);
  add_free(first, slices, kClean);
}

RegionFigures region_figures() {
  const RegionHeld held;
  RegionFigures figures{.mapped_bytes = mapped_slices * kSliceBytes,
                        .in_use_bytes = in_use_slices() * kSliceBytes,
                        .dirty_bytes = free_slices[kDirty] * kSliceBytes,
                        .peak_in_use_bytes = peak_in_use * kSliceBytes,
                        .peak_at_ns = peak_at_ns,
                        .largest_free_bytes = 0,
                        .largest_dirty_bytes = 0,
                        .grown = times_grown,
                        .given_back = times_given_back,
                        .fresh = spans_fresh,
                        .peak_reserved_bytes = peak_reserved * kSliceBytes};
  const auto largest_in = [](const Bins& own) {
    std::uint64_t slices = 0;
    for (unsigned bin = own.next_used(0); bin < kBins; bin = own.next_used(bin + 1))
      for (Slice at = own.first[bin]; at; at = page_at(at)->next)
        slices = std::max<std::uint64_t>(slices, page_at(at)->slices);
    return slices * kSliceBytes;
  };
  figures.largest_dirty_bytes = largest_in(bins[kDirty]);
  figures.largest_free_bytes = std::max(figures.largest_dirty_bytes, largest_in(bins[kClean]));
  return figures;
}

void restart_region_figures() {
  const RegionHeld held;
  times_grown = times_given_back = spans_fresh = 0;
}

[[gnu::hot]] void give_back_after(std::uint64_t idle_ns) {
  Locked hold(region_lock);
  idle_limit_ns = idle_ns;
}

std::uint64_t trim_region(std::uint64_t keep_bytes) {
  Locked hold(region_lock);
  const std::uint64_t before = free_slices[kDirty];
  dirty_min = std::min<std::uint64_t>(dirty_min, slices_in(keep_bytes));
  keep_dirty_at_most(slices_in(keep_bytes));
  unmap_top();
  return (before - free_slices[kDirty]) * kSliceBytes;
}

RegionHeld::RegionHeld() : locked_(!region_lock.held_here()), held_(true) {
  if (locked_) region_lock.lock();
}

RegionHeld::RegionHeld(UnlessForking)
    : locked_(!region_lock.held_here() && region_lock.lock_unless_forking()), held_(locked_) {}

RegionHeld::~RegionHeld() {
  if (locked_) region_lock.unlock();
}

Slice region_begin() { return window_begin; }
Slice region_end() { return window_top; }

void advise_chunks(ChunkAdvice advice) {
  Locked hold(region_lock);
  chunk_advice = advice;
  if (!advice) return;
  const auto advise = [&](Slice begin, Slice end) {
    if (begin < end) advice(slice_memory(begin), (end - begin) * kSliceBytes);
  };
  Slice end = window_top;
  for (Slice gap = last_gap; gap; end = gap, gap = page_at(gap)->next) advise(gap + page_at(gap)->slices, end);
  advise(window_begin, end);
}

void make_resident(Slice first, std::uint32_t slices) {
  region_system.make_resident(slice_memory(first), slices * kSliceBytes);
}

// Advice sticks to pages and would go with them.
bool can_move_pages() { return !chunk_advice && !region_system.keeps_pages; }

bool move_pages(void* from, void* to, std::size_t bytes) {
  return can_move_pages() && region_system.move(from, to, bytes);
}

void replace_system(const System& system) {
  Locked hold(region_lock);
  region_system = system;
}

void use_few_system_calls() {
  const RegionHeld held;
  chunk_advice = nullptr;
  region_system.make_resident = [](void*, std::size_t) {};
  region_system.keeps_pages = true;
}

void region_before_fork() { region_lock.lock_for_fork(); }
void region_after_fork() { region_lock.unlock_after_fork(); }
void region_after_fork_in_child() {
  set_aside_first.store(0, std::memory_order_relaxed);
  region_after_fork();
}

}  // namespace cistern::host_pool
