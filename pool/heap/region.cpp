// See region.hpp.
#include "pool/heap/region.hpp"

#include <errno.h>
#include <linux/futex.h>
#include <time.h>

#include <algorithm>

#include "pool/base/forked.hpp"
#include "pool/base/registered_memory.hpp"
#include "pool/base/system_call.hpp"
#include "pool/heap/pages.hpp"

namespace cistern::host_pool {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20, kGiB = std::uint64_t{1} << 30;

constexpr Region& region = the_pool.region;
constexpr Slice kWindowBegin = 1;

std::uint64_t slices_in(std::uint64_t bytes) { return bytes >> kSliceShift; }

Sort sort_of(const Page* page) { return static_cast<Sort>(page->sort); }

void unlink(Page* span) {
  Bins& own = region.bins[sort_of(span)];
  const unsigned bin = bin_of(span->slices);
  remove_page(own.first[bin], *span);
  if (!own.first[bin]) own.mark(bin, false);
  region.free_slices[sort_of(span)] -= span->slices;
  page_at(slice_of(span) + span->slices - 1)->state = PageState::none;
  span->state = PageState::none;
}

// The unit of Page::dirty_since: when most of a dirty span became free.
constexpr std::uint64_t kStampNs = 16'777'216;

std::uint32_t stamp_of_now() { return static_cast<std::uint32_t>(region_system.now_ns() / kStampNs); }

void link(Slice first, std::uint32_t slices, Sort sort, std::uint32_t since) {
  Page* const span = page_at(first);
  Page* const last = page_at(first + slices - 1);
  last->state = PageState::free_end;
  last->to_first = slices - 1;
  last->sort = sort;
  span->state = PageState::free;
  span->slices = slices;
  span->sort = sort;
  span->dirty_since = since;
  Bins& own = region.bins[sort];
  const unsigned bin = bin_of(slices);
  push_page(own.first[bin], *span);
  own.mark(bin, true);
  region.free_slices[sort] += slices;
}

// Adds free slices, one with their neighbours of the same sort.
void add_free(Slice first, std::uint32_t slices, Sort sort) {
  if (!slices) return;
  std::uint32_t most = slices, since = sort == kDirty ? stamp_of_now() : 0;
  const auto join = [&](Page* neighbour) {
    if (neighbour->slices > most) {
      most = neighbour->slices;
      since = neighbour->dirty_since;
    }
    slices += neighbour->slices;
    unlink(neighbour);
  };
  Page* before = page_at(first - 1);
  if (before->state == PageState::free_end) before -= before->to_first;
  if (before->state == PageState::free && sort_of(before) == sort) {
    first -= before->slices;
    join(before);
  }
  if (first + slices < region.window_top) {
    Page* const after = page_at(first + slices);
    if (after->state == PageState::free && sort_of(after) == sort) join(after);
  }
  link(first, slices, sort, since);
}

// The smallest free span of at least `slices`, or null. Only some spans of a bin that has smaller ones too are checked.
Page* smallest_fit(std::uint32_t slices, Sort sort) {
  constexpr int kLooks = 64;
  const Bins& own = region.bins[sort];
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
  while (end < region.window_top && page_at(end)->state == PageState::free) end += page_at(end)->slices;
  return {first, end - first};
}

// Where memory is taken from: in the run that starts with the span `run`.
struct Fit {
  Slice run = 0, first = 0;
};

// For what no dirty span is large enough for: a place that begins with one, or ends with its run, so that little has to
// be made resident. Only the largest are looked at.
Fit mostly_dirty_fit(std::uint32_t slices) {
  int looks = 16;
  const Bins& own = region.bins[kDirty];
  for (unsigned bin = own.last_used_below(kBins); bin < kBins && looks > 0; bin = own.last_used_below(bin))
    for (Slice at = own.first[bin]; at && looks > 0; at = page_at(at)->next, --looks) {
      const Run run = run_around(*page_at(at));
      if (run.slices >= slices) return {run.first, std::min(at, run.first + run.slices - slices)};
    }
  return {};
}

Span carve(const Fit& fit, std::uint32_t slices) {
  Span taken{.first = fit.first};
  const Slice end = fit.first + slices;
  for (Slice at = fit.run, span_end; at < end; at = span_end) {
    Page* const span = page_at(at);
    const Sort sort = sort_of(span);
    const std::uint32_t since = span->dirty_since;
    span_end = at + span->slices;
    if (span_end <= fit.first) continue;
    const Slice from = std::max(at, fit.first), to = std::min(span_end, end);
    unlink(span);
    if (from > at) link(at, from - at, sort, since);
    if (span_end > to) link(to, span_end - to, sort, since);
    if (sort == kClean) continue;
    if (!taken.dirty_slices) taken.dirty_first = from;
    taken.dirty_slices = to - taken.dirty_first;
  }
  return taken;
}

// --- Work for the system. No foreign function is called under the lock. The thread that holds it chooses the work, as
// spans that are no longer free. The next thread that holds no lock of ours does it (do_chosen_work). A span being
// worked on names the thread. Where that one has to end its work while another forks, it leaves word, for the next one
// that has the lock. A forked child takes over what threads were at that it does not have.
enum Work : std::uint8_t {  // Page::sort of an absent span
  kGiveBack,
  kRelease,  // registered or locked memory: its pages go, and the locks end
  kUnmap,
  kUnmapShort,  // the same, but only the first Page::bytes are mapped
  kMap,
  kNone,
};

constexpr std::uintptr_t kDone = 1, kRefused = 2;  // Page::owner of a span whose work has ended

void set_absent(Slice first, std::uint32_t slices, Work work) {
  Page& span = *page_at(first);
  span.slices = slices;
  span.sort = work;
  span.state = PageState::absent;
}

// Chooses a span that was in use.
void choose_used(Slice first, std::uint32_t slices, Work work) {
  set_absent(first, slices, work);
  push_page(region.chosen_spans, *page_at(first));
  region.away_slices += slices;
  region.work_is_left.store(true, std::memory_order_relaxed);
}

// Chooses a free span, which is not free any more.
void choose(Page& span, Work work) {
  const std::uint32_t slices = span.slices;
  unlink(&span);
  choose_used(slice_of(&span), slices, work);
}

// Addresses that nothing of ours is at any more: one with their neighbours; at the top they are taken back.
void add_hole(Slice first, std::uint32_t slices) {
  for (Slice at = region.holes, next; at; at = next) {
    Page& hole = *page_at(at);
    next = hole.next;
    if (at + hole.slices != first && first + slices != at) continue;
    remove_page(region.holes, hole);
    hole.state = PageState::none;
    first = std::min(first, at);
    slices += hole.slices;
  }
  if (first + slices == region.window_top) {
    region.window_top = first;
  } else {
    set_absent(first, slices, kNone);
    push_page(region.holes, *page_at(first));
  }
}

void end_work(Page& span, bool done) {
  remove_page(region.spans_in_work, span);
  const Slice first = slice_of(&span);
  const std::uint32_t slices = span.slices;
  const auto work = static_cast<Work>(span.sort);
  span.state = PageState::none;
  span.owner.store(0, std::memory_order_relaxed);
  if (work == kMap) {
    if (!done) return add_hole(first, slices);
    region.mapped_slices += slices;
    ++region.times_grown;
    if (region.addresses_are_scarce && region.mapped_slices > region.limit_slices / 8)
      region.memory_is_tight.store(true, std::memory_order_relaxed);
    return add_free(first, slices, kClean);
  }
  region.away_slices -= slices;
  if (!done) return add_free(first, slices, kDirty);
  ++region.times_given_back;
  if (work == kGiveBack || work == kRelease) return add_free(first, slices, kClean);
  region.mapped_slices -= slices;
  add_hole(first, slices);
}

void read_words_left() {
  if (!region.word_is_left.load(std::memory_order_relaxed)) [[likely]]
    return;
  region.word_is_left.exchange(false, std::memory_order_acquire);  // the thread that left word wrote `owner` before
  for (Slice at = region.spans_in_work, next; at; at = next) {
    Page& span = *page_at(at);
    next = span.next;
    const std::uintptr_t owner = span.owner.load(std::memory_order_acquire);
    if (owner == kDone || owner == kRefused) end_work(span, owner == kDone);
  }
}

// By the thread whose work it was; without the lock. False: another thread forks, and the span is to be had later.
bool end_work_unlocked(Page& span, bool done) {
  const LockedUnlessForking hold(region.lock);
  if (hold) {
    end_work(span, done);
  } else {
    span.owner.store(done ? kDone : kRefused, std::memory_order_release);
    region.word_is_left.store(true, std::memory_order_release);
  }
  return static_cast<bool>(hold);
}

void begin_work(Page& span) {
  push_page(region.spans_in_work, span);
  span.owner.store(this_thread(), std::memory_order_relaxed);
}

bool needs_refused_calls(const Page& span) { return span.sort == kGiveBack || span.sort == kUnmap; }

Page* begin_chosen_work() {
  const LockedUnlessForking hold(region.lock);
  if (!hold) return nullptr;
  while (region.chosen_spans) {
    Page& span = *page_at(region.chosen_spans);
    remove_page(region.chosen_spans, span);
    begin_work(span);
    if (!region_system.keeps_pages || !needs_refused_calls(span)) return &span;
    end_work(span, false);  // chosen before use_few_system_calls()
  }
  region.work_is_left.store(false, std::memory_order_relaxed);
  return nullptr;
}

bool map_advised(char* memory, std::size_t bytes) {
  if (!region_system.map(memory, bytes)) return false;
  if (const ChunkAdvice advice = std::atomic_ref(region.chunk_advice).load(std::memory_order_relaxed))
    advice(memory, bytes);
  return true;
}

// Where a filter of system calls is set, the only call left is the one by which the C library's malloc maps memory.
bool release_pages(char* memory, std::size_t bytes) {
  const Registered found = registered_in(memory, bytes);
  if (!found) return false;  // it was a fork that kept `free` from asking
  if (found.locked) forget_locked(memory, bytes);
  if (region_system.keeps_pages) return region_system.renew(memory, bytes);
  if (found.locked) system_call(SYS_munlock, address_of(memory), bytes);
  region_system.give_back(memory, bytes);
  return true;
}

// Behind `mapped` there may be a foreign mapping by now. Where the span is not to be had whole again either, it becomes
// a hole with pages in it, which the next one who maps memory there finds taken.
bool unmap_short(char* memory, std::size_t mapped, std::size_t bytes) {
  if (!region_system.keeps_pages && region_system.unmap(memory, mapped)) return true;
  return !map_advised(memory + mapped, bytes - mapped);
}

// False: the span stays mapped, and may not read as zero.
bool do_work(const Page& span) {
  const CallingSystem calling;
  char* const memory = page_memory(&span);
  const std::size_t bytes = span.slices * kSliceBytes;
  if (span.sort == kRelease) return release_pages(memory, bytes);
  if (span.sort == kUnmap) return region_system.unmap(memory, bytes);
  if (span.sort == kUnmapShort) return unmap_short(memory, span.bytes, bytes);
  region_system.give_back(memory, bytes);
  return true;
}

// In a child: what other threads of the parent were at. Whether it was done is not known, so it is taken for what is
// true in any case.
void take_over_work() {
  for (Slice at = region.spans_in_work, next; at; at = next) {
    Page& span = *page_at(at);
    next = span.next;
    const std::uintptr_t owner = span.owner.load(std::memory_order_relaxed);
    if (owner == this_thread() || owner == kDone || owner == kRefused) continue;
    end_work(span, span.sort == kUnmap || span.sort == kUnmapShort);
  }
}

// --- Giving back
void give_back(Page& span) { choose(span, kGiveBack); }

// The dirty span that is worth least: the smallest of those that pages of blocks cannot use up, else the largest.
// kBins: there is none.
unsigned least_useful_bin() {
  const unsigned larger = region.bins[kDirty].next_used(bin_of(kPageSlicesMax + 1));
  return larger < kBins ? larger : region.bins[kDirty].last_used_below(kBins);
}

// The end of a dirty span: about `wanted` slices, enough to be worth the call. False: there is none.
bool give_back_some(std::uint64_t wanted) {
  constexpr std::uint64_t kWorthACall = 16;
  const unsigned bin = least_useful_bin();
  if (bin == kBins) return false;
  Page& span = *page_at(region.bins[kDirty].first[bin]);
  const auto given = static_cast<std::uint32_t>(std::min<std::uint64_t>(std::max(wanted, kWorthACall), span.slices));
  const Slice first = slice_of(&span);
  const std::uint32_t kept = span.slices - given;
  if (kept) {
    const std::uint32_t since = span.dirty_since;
    unlink(&span);
    link(first, kept, kDirty, since);
    link(first + kept, given, kDirty, since);
  }
  give_back(*page_at(first + kept));
  return true;
}

std::uint64_t in_use_slices() {
  return region.mapped_slices - region.free_slices[kClean] - region.free_slices[kDirty] - region.reserving -
         region.away_slices;
}

void keep_dirty_at_most(std::uint64_t slices) {
  if (region_system.keeps_pages) return;
  while (region.free_slices[kDirty] > slices && give_back_some(region.free_slices[kDirty] - slices)) {
  }
}

// Where addresses are scarce what is free is to be little, as with the C library, which unmaps large blocks and
// shortens its heap. The largest spans go first.
void give_addresses_back() {
  if (!region.addresses_are_scarce || region_system.unit_bytes != kSliceBytes) return;
  const std::uint64_t kept = std::max(slices_in(kMiB), in_use_slices() / 16);
  const auto free = [] { return region.free_slices[kClean] + region.free_slices[kDirty]; };
  if (free() < 4 * kept) return;
  while (free() > kept) {
    const unsigned clean = region.bins[kClean].last_used_below(kBins),
                   dirty = region.bins[kDirty].last_used_below(kBins);
    const Sort sort = clean == kBins || (dirty != kBins && dirty >= clean) ? kDirty : kClean;
    choose(*page_at(region.bins[sort].first[sort == kDirty ? dirty : clean]), kUnmap);
  }
}

// Dirty spans that were not used for so long, but for as much as is reserved. The slices.
std::uint64_t give_back_unused_for(std::uint64_t unused_ns) {
  const std::uint64_t now = region_system.now_ns(), before = region.free_slices[kDirty];
  for (unsigned bin = region.bins[kDirty].next_used(0); bin < kBins; bin = region.bins[kDirty].next_used(bin + 1)) {
    for (Slice at = region.bins[kDirty].first[bin]; at;) {
      Page& span = *page_at(at);
      at = span.next;
      if (region.free_slices[kDirty] < region.dirty_min + span.slices) continue;
      if (now - span.dirty_since * kStampNs >= unused_ns) give_back(span);
    }
  }
  return before - region.free_slices[kDirty];
}

void give_back_idle() {
  if (!region.idle_limit_ns || region_system.keeps_pages) return;
  const std::uint64_t now = region_system.now_ns();
  if (now < region.next_look_ns) return;
  region.next_look_ns = now + region.idle_limit_ns / 4;
  note_returned(Why::age, give_back_unused_for(region.idle_limit_ns) * kSliceBytes);
}

// --- How much dirty memory is kept
// What of so many slices in use is mapped.
std::uint64_t mapped_of(std::uint64_t slices) {
  const std::uint64_t bytes = slices * kSliceBytes;
  return bytes - std::min(bytes, region.short_bytes.load(std::memory_order_relaxed));
}

std::uint64_t in_use_without(std::uint32_t replaced) {
  const std::uint64_t in_use = in_use_slices();
  return in_use - std::min<std::uint64_t>(in_use, replaced);
}

void note_peak(std::uint32_t replaced) {
  const std::uint64_t in_use = in_use_without(replaced);
  region.in_use_lately.now = std::max(region.in_use_lately.now, in_use);
  const std::uint64_t bytes = mapped_of(in_use);
  if (bytes <= region.peak_in_use_bytes) return;
  region.peak_in_use_bytes = bytes;
  region.peak_at_ns = region_system.now_ns();
}

std::uint64_t recent_peak(std::uint64_t in_use) {
  region.in_use_lately.begin_period(region_system.now_ns(), in_use);
  return region.in_use_lately.most();
}

// When memory that is not resident was taken, little may lie idle. Large blocks of various sizes leave gaps that the
// next one does not fit into, and a page of samples is not resident by choice. For these the limit is a tenth more
// resident memory than was in use not long ago.
std::uint64_t dirty_max_when_growing(std::uint32_t slices, Prefer prefer, std::uint32_t replaced) {
  const std::uint64_t little = slices_in(512 << 10);
  if (slices <= kPageSlicesMax && prefer != Prefer::clean) return std::max(little, in_use_slices() / 16);
  const std::uint64_t in_use = in_use_without(replaced), peak = recent_peak(in_use);
  const std::uint64_t resident = std::max(peak + peak / 10, in_use);
  return std::max(little, resident - in_use);
}

// Some programs work in phases: memory that was given back and wanted again within a second is not given back the next
// time. For a period or two, since they may end.
constexpr std::uint64_t kRegretNs = 1'000'000'000;

std::uint64_t given_back_within_a_second(std::uint64_t now_ns) {
  return now_ns - region.given_back_ns > kRegretNs ? 0 : region.last_given_back;
}

void note_given_back(std::uint64_t slices) {
  const std::uint64_t now_ns = region_system.now_ns();
  region.last_given_back = given_back_within_a_second(now_ns) + slices;
  region.given_back_ns = now_ns;
}

// So many slices were taken that had to be made resident.
void note_fresh(std::uint64_t slices) {
  if (!region.last_given_back) return;
  const std::uint64_t now_ns = region_system.now_ns();
  region.last_given_back = given_back_within_a_second(now_ns);
  const std::uint64_t wanted_again = std::min(slices, region.last_given_back);
  if (!wanted_again) return;
  region.last_given_back -= wanted_again;
  region.regretted.begin_period(now_ns, 0);
  region.regretted.now += wanted_again;
  region.regrets_end_ns.store(region.regretted.period_end_ns + Lately::kPeriodNs, std::memory_order_relaxed);
}

// When memory comes back: the program may soon want as much again.
std::uint64_t dirty_max_when_releasing(std::uint64_t little = 64 * kMiB) {
  const std::uint64_t in_use = in_use_slices(), usual = std::max(slices_in(little), in_use / 2);
  if (!region.regretted.most()) return usual;
  region.regretted.begin_period(region_system.now_ns(), 0);
  const std::uint64_t peak = recent_peak(in_use), idle_at_peak = peak - std::min(peak, in_use);
  return std::max(usual,
                  std::min(usual + region.regretted.most(), idle_at_peak));  // a part of what was wanted had stayed
}

void keep_what_may_be_wanted(std::uint64_t slices) {
  const std::uint64_t idle = region.free_slices[kDirty];
  keep_dirty_at_most(std::max(region.dirty_min, slices));
  if (region.free_slices[kDirty] < idle) note_given_back(idle - region.free_slices[kDirty]);
}

Span take(const Fit& fit, std::uint32_t slices, Prefer prefer, std::uint32_t replaced) {
  const std::uint64_t clean = region.free_slices[kClean];
  const Span span = carve(fit, slices);
  note_peak(replaced);
  if (region.free_slices[kClean] < clean) {
    note_fresh(clean - region.free_slices[kClean]);
    ++region.spans_fresh;
    region.peak_reserved = std::max(region.peak_reserved, region.mapped_slices - region.free_slices[kClean]);
  }
  if (region.free_slices[kClean] < clean)
    keep_dirty_at_most(std::max(region.dirty_min, dirty_max_when_growing(slices, prefer, replaced)));
  return span;
}

// --- Growing
// Descriptors are made for 64 MiB of memory at a time. The window ends where a foreign mapping is in their way.
constexpr std::uintptr_t kDescribedAtOnce = 1024;

bool describe(std::uint64_t end) {
  if (end <= the_pool.window.slice_limit) return true;
  const std::uintptr_t from = the_pool.window.slice_limit;
  const std::uintptr_t to =
      std::min<std::uintptr_t>((end + kDescribedAtOnce - 1) & ~(kDescribedAtOnce - 1), region.window_end);
  if (!region_system.describe(the_pool.window.pages + from, (to - from) * sizeof(Page))) return false;
  std::atomic_ref(the_pool.window.slice_limit).store(to, std::memory_order_release);
  return true;
}

// Slices at the top that are not ours: a foreign mapping is there, or a unit begins behind.
void skip(std::uint32_t slices) {
  set_absent(region.window_top, slices, kNone);
  region.window_top += slices;
}

// At the top, for a new chunk: in units, as far as there is room for it. Null: there is none.
Page* claim_top(std::uint32_t slices) {
  const std::uint64_t unit = slices_in(region_system.unit_bytes), below = the_pool.window.base >> kSliceShift;
  const std::uint64_t aligned_top = (below + region.window_top + unit - 1) / unit * unit - below;
  if (aligned_top + slices > region.window_end || !describe(aligned_top + slices)) return nullptr;
  if (aligned_top > region.window_top) skip(static_cast<std::uint32_t>(aligned_top - region.window_top));
  set_absent(region.window_top, slices, kMap);
  Page* const claimed = page_at(region.window_top);
  region.window_top += slices;
  return claimed;
}

Page* claim_hole(std::uint32_t slices) {
  int looks = 64;
  for (Slice at = region.holes; at && looks > 0; at = page_at(at)->next, --looks) {
    Page& hole = *page_at(at);
    if (hole.slices < slices) continue;
    remove_page(region.holes, hole);
    if (hole.slices > slices) add_hole(at + slices, hole.slices - slices);
    set_absent(at, slices, kMap);
    return &hole;
  }
  return nullptr;
}

// The slices where a foreign mapping is in the way are not ours; at the top no more of them than the step.
void give_up(Page& claimed, std::uint32_t step) {
  remove_page(region.spans_in_work, claimed);
  claimed.owner.store(0, std::memory_order_relaxed);
  claimed.sort = kNone;
  if (slice_of(&claimed) + claimed.slices != region.window_top) return;
  region.window_top = slice_of(&claimed);
  claimed.state = PageState::none;
  if (region.window_end - region.window_top > step && describe(region.window_top + std::uint64_t{step} + 1)) skip(step);
}

enum class Mapped { yes, no, foreign_in_the_way };

Mapped map_chunk(const Page& chunk) {
  const CallingSystem calling;
  if (map_advised(page_memory(&chunk), chunk.slices * kSliceBytes)) return Mapped::yes;
  return errno == EEXIST ? Mapped::foreign_in_the_way : Mapped::no;
}

// So many slices more. The window continues behind a foreign mapping that is in the way.
bool grow_by(std::uint32_t slices) {
  constexpr int kTries = 64;
  std::uint32_t step = 1024;
  for (int tries = 0; tries < kTries; ++tries) {
    Page* chunk;
    {
      const LockedUnlessForking hold(region.lock);
      if (!hold) return false;
      chunk = claim_hole(slices);
      if (!chunk) chunk = claim_top(slices);
      if (!chunk) return false;
      begin_work(*chunk);
    }
    const Mapped mapped = map_chunk(*chunk);
    if (mapped != Mapped::foreign_in_the_way)
      return end_work_unlocked(*chunk, mapped == Mapped::yes) && mapped == Mapped::yes;
    const LockedUnlessForking hold(region.lock);
    if (!hold) {
      chunk->owner.store(kRefused, std::memory_order_release);
      region.word_is_left.store(true, std::memory_order_release);
      return false;
    }
    give_up(*chunk, step);
    step = std::min(step * 2, std::uint32_t{1} << 18);
  }
  return false;
}

// By a chunk that has room for so many slices, or just by these. Without the lock.
bool grow(std::uint32_t slices) {
  if (CallingSystem::is_under_way()) return false;
  std::uint64_t rounded;
  {
    const LockedUnlessForking hold(region.lock);
    if (!hold) return false;
    const std::uint64_t unit = slices_in(region_system.unit_bytes);
    const auto in_units = [&](std::uint64_t number) { return (number + unit - 1) / unit * unit; };
    const std::uint64_t chunk = in_units(std::clamp(in_use_slices() / 16, slices_in(4 * kMiB), slices_in(256 * kMiB)));
    rounded = std::max<std::uint64_t>(slices, (slices + chunk - 1) / chunk * chunk);
  }
  if (rounded <= region.window_end && grow_by(static_cast<std::uint32_t>(rounded))) return true;
  return rounded != slices && grow_by(slices);
}

// --- Where the system refuses
void sleep_shortly() {
  static constexpr timespec kShort{0, 50'000};
  static constinit std::uint32_t nobody_wakes = 0;
  system_call(SYS_futex, address_of(&nobody_wakes), FUTEX_WAIT_PRIVATE, 0, address_of(&kShort));
}

void note_limit(std::uint64_t bytes) {
  region.addresses_are_scarce = bytes != kNoLimit;
  region.limit_slices = slices_in(bytes);
}

// All that is free is chosen: to be unmapped where addresses are scarce, which may show only now; else what is dirty,
// so that neighbours become one. False: there is nothing.
bool choose_all() {
  note_limit(region_system.limit_bytes());
  region.memory_is_tight.store(region.addresses_are_scarce, std::memory_order_relaxed);
  const std::uint64_t before = region.away_slices;
  const bool unmap = region.addresses_are_scarce && region_system.unit_bytes == kSliceBytes;
  for (const Sort sort : {kClean, kDirty}) {
    if (!unmap && (sort == kClean || region_system.keeps_pages)) continue;
    for (unsigned bin = region.bins[sort].next_used(0); bin < kBins; bin = region.bins[sort].next_used(bin))
      choose(*page_at(region.bins[sort].first[bin]), unmap ? kUnmap : kGiveBack);
  }
  return region.away_slices > before;
}

// After a refusal, without the lock: whether it is worth to try once more. Work that any thread chose before counts.
// Memory that other threads are giving back is waited for, but not long: they may wait for this one.
bool make_room(unsigned tries) {
  constexpr unsigned kTries = 100;
  if (locks_held > 0 || CallingSystem::is_under_way() || tries > kTries) return false;
  {
    const LockedUnlessForking hold(region.lock);
    if (!hold) return false;
    read_words_left();
    if (!choose_all() && !region.chosen_spans && !region.spans_in_work) return false;
  }
  if (region.work_is_left.load(std::memory_order_relaxed)) {
    do_chosen_work();
  } else {
    sleep_shortly();
  }
  return true;
}

// For at least `slices`; none: the region has to grow.
Fit find_fit(std::uint32_t slices, Prefer prefer) {
  const auto of_span = [](const Page* span) { return Fit{slice_of(span), slice_of(span)}; };
  const Sort first_choice = prefer == Prefer::clean ? kClean : kDirty;
  if (const Page* span = smallest_fit(slices, first_choice)) return of_span(span);
  if (prefer == Prefer::dirty_only) return {};
  if (prefer == Prefer::clean) {
    if (const Page* span = smallest_fit(slices, kDirty)) return of_span(span);
  } else if (slices > kPageSlicesMax) {
    if (const Fit fit = mostly_dirty_fit(slices); fit.run) return fit;
  }
  const Page* const span = smallest_fit(slices, kClean);
  return span ? of_span(span) : Fit{};
}

void read_new_limits() {
  if (!region.limits_are_new.load(std::memory_order_relaxed)) [[likely]]
    return;
  region.limits_are_new.store(false, std::memory_order_relaxed);
  const std::uint64_t bytes = region_system.limit_bytes();
  if (region.machine) region.machine->limit_bytes = bytes;  // there may be no window yet
  note_limit(bytes);
  region.memory_is_tight.store(region.addresses_are_scarce && region.mapped_slices > region.limit_slices / 8,
                               std::memory_order_relaxed);
  give_addresses_back();
}

// --- Spans released while a thread forks: they wait in a stack, linked through their descriptors, for the next thread
// that has the lock. A child forgets them: it may have been cut off with a part of the stack.
// `work`: what is to be done with the span before it is free; kNone: nothing.
void set_aside(Slice first, std::uint32_t slices, Work work = kNone) {
  Page& span = *page_at(first);
  span.slices = slices;
  span.sort = work;
  Slice head = region.set_aside_first.load(std::memory_order_relaxed);
  do span.next = head;
  while (
      !region.set_aside_first.compare_exchange_weak(head, first, std::memory_order_release, std::memory_order_relaxed));
}

void take_back_set_aside() {
  read_words_left();
  read_new_limits();
  if (!region.set_aside_first.load(std::memory_order_relaxed)) [[likely]]
    return;
  for (Slice at = region.set_aside_first.exchange(0, std::memory_order_acquire); at;) {
    const Page& span = *page_at(at);
    const Slice next = span.next;
    if (span.sort == kNone) {
      add_free(at, span.slices, kDirty);
    } else {
      choose_used(at, span.slices, static_cast<Work>(span.sort));
    }
    at = next;
  }
}

// The descriptors lie below the memory, so that they grow towards it.
bool place(std::uint64_t begin, std::uint64_t bytes) {
  const std::uint64_t slices = std::min(kWindowBegin + slices_in(bytes), std::uint64_t{kSlicesMax});
  const std::uintptr_t base = begin - kWindowBegin * kSliceBytes;
  auto* const descriptors = reinterpret_cast<Page*>((base - slices * sizeof(Page)) & ~(kSliceBytes - 1));
  if (!region_system.describe(descriptors, kDescribedAtOnce * sizeof(Page))) return false;
  the_pool.window.pages = descriptors;
  the_pool.window.base = base;
  region.window_top = kWindowBegin;
  region.window_end = static_cast<Slice>(slices);
  return true;
}

bool place_window(const Machine& found) {
  the_pool.window.free_mark = static_cast<std::uintptr_t>(found.random | 1);
  note_limit(region_system.keeps_pages ? kNoLimit : found.limit_bytes);
  const auto somewhere = [&](std::uint64_t begin, std::uint64_t within, std::uint64_t bytes) {
    return place(begin + (found.random >> 20) % (within / kMiB) * kMiB, bytes);
  };
  return somewhere(64 * kGiB, 16 * kGiB, 2 * found.physical_bytes + 32 * kGiB) ||
         somewhere(16 * kGiB, 8 * kGiB, 22 * kGiB) || somewhere(1 * kGiB, kGiB, 2 * kGiB);
}

}  // namespace

// Here, and not in system.cpp, it lies where alignment leaves room.
constinit thread_local std::uint32_t CallingSystem::called_from = 0;

void do_chosen_work_slowly() {
  if (locks_held > 0 || CallingSystem::is_under_way()) return;
  const int saved_errno = errno;  // `free` comes here
  while (Page* const span = begin_chosen_work())
    if (!end_work_unlocked(*span, do_work(*span))) break;
  errno = saved_errno;
}

bool memory_is_tight() { return region.memory_is_tight.load(std::memory_order_relaxed); }

bool there_is_chosen_work() { return region.work_is_left.load(std::memory_order_relaxed); }

void note_new_limits() { region.limits_are_new.store(true, std::memory_order_relaxed); }

void limits_changed() {
  note_new_limits();
  if (!region.lock.try_lock()) return;
  read_new_limits();
  region.lock.unlock();
  do_chosen_work();
}

void look_at_limits() { region.machine = look_at_machine(); }

bool start_region() {
  if (std::atomic_ref(the_pool.window.slice_limit).load(std::memory_order_acquire)) return true;
  if (CallingSystem::is_under_way()) return false;
  const Machine found = region.machine ? *region.machine : look_at_machine();
  const LockedUnlessForking hold(region.lock);
  if (the_pool.window.slice_limit) return true;
  if (!hold || !place_window(found)) return false;
  std::atomic_ref(the_pool.window.slice_limit).store(kDescribedAtOnce, std::memory_order_release);
  return true;
}

Span acquire_span(std::uint32_t slices, std::uint32_t alignment_slices, Prefer prefer, std::uint32_t replaced) {
  const std::uint64_t wanted = std::uint64_t{slices} + alignment_slices - 1;
  if (wanted + kWindowBegin > region.window_end) return {};
  const std::uintptr_t below = the_pool.window.base >> kSliceShift;
  for (unsigned refusals = 0;;) {
    {
      const LockedUnlessForking hold(region.lock);
      if (!hold) return {};
      take_back_set_aside();
      Span taken;
      if (const Fit fit = find_fit(static_cast<std::uint32_t>(wanted), prefer); fit.run) {
        const std::uintptr_t first =
            (below + fit.first + alignment_slices - 1) / alignment_slices * alignment_slices - below;
        taken = take({fit.run, static_cast<Slice>(first)}, slices, prefer, replaced);
      }
      give_back_idle();  // not before: what has been idle for long may be what is wanted
      if (taken.first) return taken;
    }
    if (prefer == Prefer::dirty_only) return {};
    if (!grow(static_cast<std::uint32_t>(wanted)) && !make_room(refusals++)) return {};
  }
}

bool extend_span(Slice end, std::uint32_t more) {
  const LockedUnlessForking hold(region.lock);
  if (!hold || end >= region.window_top) return false;
  take_back_set_aside();
  if (page_at(end)->state != PageState::free) return false;
  const Run run = run_around(*page_at(end));
  if (run.slices < more) return false;
  take({end, end}, more, Prefer::dirty, 0);
  return true;
}

void release_span(Slice first, std::uint32_t slices) {
  const LockedUnlessForking hold(region.lock);
  if (!hold) return set_aside(first, slices);
  take_back_set_aside();
  give_back_idle();
  add_free(first, slices, kDirty);
  keep_what_may_be_wanted(dirty_max_when_releasing());
  give_addresses_back();
}

void release_ended() {
  const LockedUnlessForking hold(region.lock);
  if (hold) keep_what_may_be_wanted(dirty_max_when_releasing(32 * kMiB));
}

void end_regrets() {
  const std::uint64_t end_ns = region.regrets_end_ns.load(std::memory_order_relaxed);
  if (!end_ns || region_system.now_ns() < end_ns) return;
  const LockedUnlessForking hold(region.lock);
  if (!hold || region.regrets_end_ns.load(std::memory_order_relaxed) != end_ns) return;
  region.regrets_end_ns.store(0, std::memory_order_relaxed);
  keep_dirty_at_most(std::max(region.dirty_min, dirty_max_when_releasing()));
}

void look_for_idle() {
  const LockedUnlessForking hold(region.lock);
  if (hold) give_back_idle();
}

std::size_t reserve_spans(std::uint32_t slices, std::size_t count) {
  std::size_t made = 0;
  while (made < count) {
    Fit fit;
    {
      Locked hold(region.lock);
      // Not by giving back what is dirty, which is what there is to be more of.
      if (const Page* const span = smallest_fit(slices, kClean)) {
        fit = {slice_of(span), slice_of(span)};
        region.reserving += slices;
        carve(fit, slices);
      }
    }
    if (!fit.run) {
      if (!grow(slices)) return made;
      continue;
    }
    make_resident(fit.first, slices);
    Locked hold(region.lock);
    region.reserving -= slices;
    region.dirty_min += slices;
    add_free(fit.first, slices, kDirty);
    region.peak_reserved = std::max(region.peak_reserved, region.mapped_slices - region.free_slices[kClean]);
    ++made;
  }
  return made;
}

void release_clean_span(Slice first, std::uint32_t slices) {
  const LockedUnlessForking hold(region.lock);
  if (!hold) return set_aside(first, slices);
  add_free(first, slices, kClean);
  give_addresses_back();
}

namespace {
void release_for_work(Slice first, std::uint32_t slices, Work work) {
  const LockedUnlessForking hold(region.lock);
  if (!hold) return set_aside(first, slices, work);
  take_back_set_aside();
  choose_used(first, slices, work);
}
}  // namespace

// Huge pages stay, as they do in any case.
void release_registered_span(Slice first, std::uint32_t slices) {
  if (region_system.unit_bytes != kSliceBytes) return release_span(first, slices);
  release_for_work(first, slices, kRelease);
}

// --- Short spans
namespace {
constexpr std::size_t kWorthACall = 16 << 10;
constexpr unsigned kShortMax = 32 << 10;  // each may be a mapping of its own; a process may have 65,530 of these

void forget_short(std::uint64_t unmapped_bytes) {
  region.short_spans.fetch_sub(1, std::memory_order_relaxed);
  region.short_bytes.fetch_sub(unmapped_bytes, std::memory_order_relaxed);
}
}  // namespace

bool shorten_span(Slice first, std::uint32_t slices, std::size_t bytes) {
  const std::size_t rest = slices * kSliceBytes - bytes;
  if (!region.memory_is_tight.load(std::memory_order_relaxed) || rest < kWorthACall || locks_held > 0 ||
      region_system.unit_bytes != kSliceBytes || CallingSystem::is_under_way())
    return false;
  if (region.short_spans.fetch_add(1, std::memory_order_relaxed) < kShortMax) {
    const CallingSystem calling;
    if (region_system.unmap(slice_memory(first) + bytes, rest)) {
      region.short_bytes.fetch_add(rest, std::memory_order_relaxed);
      return true;
    }
  }
  region.short_spans.fetch_sub(1, std::memory_order_relaxed);
  return false;
}

bool make_span_whole(Slice first, std::uint32_t slices, std::size_t bytes) {
  if (locks_held > 0 || CallingSystem::is_under_way()) return false;
  const std::size_t rest = slices * kSliceBytes - bytes;
  {
    const CallingSystem calling;
    if (!map_advised(slice_memory(first) + bytes, rest)) return false;
  }
  forget_short(rest);
  const LockedUnlessForking hold(region.lock);
  if (hold) note_peak(0);
  return true;
}

void release_short_span(Slice first, std::uint32_t slices) {
  forget_short(slices * kSliceBytes - page_at(first)->bytes);
  release_for_work(first, slices, kUnmapShort);
}

RegionFigures region_figures() {
  const RegionHeld held;
  const std::uint64_t in_use = in_use_slices(), in_use_bytes = mapped_of(in_use);
  RegionFigures figures{.mapped_bytes = (region.mapped_slices - in_use) * kSliceBytes + in_use_bytes,
                        .in_use_bytes = in_use_bytes,
                        .dirty_bytes = region.free_slices[kDirty] * kSliceBytes,
                        .peak_in_use_bytes = region.peak_in_use_bytes,
                        .peak_at_ns = region.peak_at_ns,
                        .largest_free_bytes = 0,
                        .largest_dirty_bytes = 0,
                        .grown = region.times_grown,
                        .given_back = region.times_given_back,
                        .fresh = region.spans_fresh,
                        .peak_reserved_bytes = region.peak_reserved * kSliceBytes};
  const auto largest_in = [](const Bins& own) {
    std::uint64_t slices = 0;
    for (unsigned bin = own.next_used(0); bin < kBins; bin = own.next_used(bin + 1))
      for (Slice at = own.first[bin]; at; at = page_at(at)->next)
        slices = std::max<std::uint64_t>(slices, page_at(at)->slices);
    return slices * kSliceBytes;
  };
  figures.largest_dirty_bytes = largest_in(region.bins[kDirty]);
  figures.largest_free_bytes = std::max(figures.largest_dirty_bytes, largest_in(region.bins[kClean]));
  return figures;
}

void restart_region_figures() {
  const RegionHeld held;
  region.times_grown = region.times_given_back = region.spans_fresh = 0;
  for (std::atomic<std::uint64_t>& bytes : the_pool.purges.returned) bytes.store(0, std::memory_order_relaxed);
}

[[gnu::hot]] void give_back_after(std::uint64_t idle_ns) {
  Locked hold(region.lock);
  region.idle_limit_ns = idle_ns;
  the_pool.purges.idle_ns.store(idle_ns, std::memory_order_relaxed);
}

std::uint64_t trim_region(std::uint64_t keep_bytes) {
  std::uint64_t given;
  {
    Locked hold(region.lock);
    const std::uint64_t before = region.free_slices[kDirty];
    region.dirty_min = std::min<std::uint64_t>(region.dirty_min, slices_in(keep_bytes));
    keep_dirty_at_most(slices_in(keep_bytes));
    give_addresses_back();
    given = before - region.free_slices[kDirty];
  }
  do_chosen_work();
  return given * kSliceBytes;
}

std::uint64_t give_back_unused(std::uint64_t unused_ns) {
  std::uint64_t given = 0;
  {
    const LockedUnlessForking hold(region.lock);
    if (!hold || region_system.keeps_pages) return 0;
    take_back_set_aside();
    given = give_back_unused_for(unused_ns);
  }
  do_chosen_work();
  return given * kSliceBytes;
}

RegionHeld::RegionHeld() : locked_(!region.lock.held_here()), held_(true) {
  if (locked_) region.lock.lock();
}

RegionHeld::RegionHeld(UnlessForking)
    : locked_(!region.lock.held_here() && region.lock.lock_unless_forking()), held_(locked_) {}

RegionHeld::~RegionHeld() {
  if (locked_) region.lock.unlock();
}

Slice region_begin() { return kWindowBegin; }
// The top moves beside who reads it without the lock, to look whether a page can be one.
__attribute__((no_sanitize("thread"))) Slice region_end() { return region.window_top; }

namespace {

struct Stretch {
  Slice first = 0, end = 0;
};

// The next one that is mapped, from `at` on.
Stretch next_mapped(Slice at) {
  const RegionHeld held;
  const auto is_absent = [](Slice slice) {
    return page_at(slice)->state == PageState::absent &&
           (page_at(slice)->sort == kMap || page_at(slice)->sort == kNone);
  };
  const auto behind = [](Slice slice) {
    return slice + slices_to_next(*page_at(slice), page_at(slice)->state, region.window_top);
  };
  while (at < region.window_top && is_absent(at)) at = behind(at);
  Stretch found{at, at};
  while (found.end < region.window_top && !is_absent(found.end)) found.end = behind(found.end);
  return found;
}

}  // namespace

// Memory that is unmapped meanwhile is advised in vain.
void advise_chunks(ChunkAdvice advice) {
  std::atomic_ref(region.chunk_advice).store(advice, std::memory_order_relaxed);
  if (!advice || !there_is_a_window()) return;
  for (Stretch some = next_mapped(kWindowBegin); some.first < some.end; some = next_mapped(some.end)) {
    const CallingSystem calling;
    advice(slice_memory(some.first), (some.end - some.first) * kSliceBytes);
  }
}

void make_resident(Slice first, std::uint32_t slices) {
  if (CallingSystem::is_under_way()) return;
  const CallingSystem calling;
  region_system.make_resident(slice_memory(first), slices * kSliceBytes);
}

// Advice sticks to pages and would go with them.
bool can_move_pages() { return !region.chunk_advice && !region_system.keeps_pages; }

bool move_pages(void* from, void* to, std::size_t bytes) {
  if (!can_move_pages() || CallingSystem::is_under_way()) return false;
  const CallingSystem calling;
  return region_system.move(from, to, bytes);
}

void replace_system(const System& system) {
  Locked hold(region.lock);
  region_system = system;
}

void use_few_system_calls() {
  const RegionHeld held;
  region.chunk_advice = nullptr;
  region_system.make_resident = [](void*, std::size_t) {};
  region_system.limit_bytes = [] { return kNoLimit; };
  region_system.keeps_pages = true;
  note_limit(kNoLimit);
  region.memory_is_tight.store(false, std::memory_order_relaxed);
  note_new_limits();  // a thread that holds the region may have been interrupted with the old ones
}

void region_before_fork() { region.lock.lock_for_fork(); }
void region_after_fork() { region.lock.unlock_after_fork(); }
void region_after_fork_in_child() {
  set_in_child(region.set_aside_first, 0u);
  if (region.lock.is_held_for_fork()) take_over_work();  // else a handler forked that interrupted who holds it
  region_after_fork();
}

}  // namespace cistern::host_pool
