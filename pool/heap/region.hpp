// The region: the window of addresses that all memory of the host pool lies in, and its free spans of slices.
//
// Grows upwards chunk by chunk. Where the process has a limit of its address space, what is free is unmapped but for a
// little; else nothing is. A free span is clean (never touched, or given back to the system: it reads as zero) or dirty
// (resident). Neighbours of one sort are one span. Dirty spans are mostly used first; how many bytes of them are kept
// is bounded, the rest is given back, the largest first. One lock guards everything here, and is never held while the
// system is asked: see do_chosen_work().
#pragma once
#include <algorithm>

#include "pool/base/lock.hpp"
#include "pool/heap/pages.hpp"

namespace cistern::host_pool {

struct Span {
  Slice first = 0;  // 0: no memory
  // The part that may not read as zero.
  Slice dirty_first = 0;
  std::uint32_t dirty_slices = 0;
};

// Called at the start, since the first block may be wanted under a filter of system calls; else start_region() looks.
// Beside no other thread.
void look_at_limits();
// Finds a place for the window; false: there is none. Idempotent.
bool start_region();

// The process has another limit of its memory. Waits for no thread, since a limit may be set in a signal handler, and
// in a child that a system call forked while a thread held the region. Then the next thread that holds the region reads
// the limits.
void limits_changed();
// The same, and nothing is looked at here: a child of vfork has its parent's region, but limits of its own.
void note_new_limits();

// Spans that go back to the system are only chosen by the calls below. They go where the calling code holds no lock of
// ours and has finished its own change, since the functions called may come back to malloc. Every entry of the pool
// that can choose spans ends with this.
void do_chosen_work_slowly();
bool there_is_chosen_work();
inline void do_chosen_work() {
  if (there_is_chosen_work()) [[unlikely]]
    do_chosen_work_slowly();
}

// Resident memory, or memory that may stay untouched for the most part.
enum class Prefer { dirty, clean, dirty_only };
// `replaced`: so many slices that are in use go for it, soon after.
Span acquire_span(std::uint32_t slices, std::uint32_t alignment_slices = 1, Prefer prefer = Prefer::dirty,
                  std::uint32_t replaced = 0);
void release_span(Slice first, std::uint32_t slices);
// A thread has ended and released much: less is kept than of a thread that goes on.
void release_ended();
// Memory that is kept because a program wanted it again goes back when that is long ago. To be called now and then,
// also where no spans are taken or released.
void end_regrets();
void release_clean_span(Slice first, std::uint32_t slices);  // it reads as zero
// The span's memory may be registered or locked: the pages go back to the system, and the locks end, before it is free.
void release_registered_span(Slice first, std::uint32_t slices);
// Where a limit of the process comes near: the pages behind the first `bytes` of a span in use are unmapped, if that is
// worth it. Such a span is released as short, its Page::bytes saying how much of it is mapped, or made whole again
// before anything else is done with it.
bool shorten_span(Slice first, std::uint32_t slices, std::size_t bytes);
bool make_span_whole(Slice first, std::uint32_t slices, std::size_t bytes);
void release_short_span(Slice first, std::uint32_t slices);
// The slices right behind a span that is in use, if they are free: the span grew. Else 0.
bool extend_span(Slice end, std::uint32_t more);

// Without what is unmapped of short spans.
struct RegionFigures {
  std::uint64_t mapped_bytes, in_use_bytes, dirty_bytes, peak_in_use_bytes;
  std::uint64_t peak_at_ns;  // as System::now_ns
  std::uint64_t largest_free_bytes, largest_dirty_bytes;
  std::uint64_t grown, given_back;    // calls
  std::uint64_t fresh;                // spans taken that the system had to back, in part at least
  std::uint64_t peak_reserved_bytes;  // in use and dirty
};
RegionFigures region_figures();
// In a forked child: its calls are counted from here on.
void restart_region_figures();

// Memory that was not used for so long goes back, 0: never. Dirty spans are looked for whenever spans are taken or
// released, and by look_for_idle(); pages of blocks: purge.hpp.
void give_back_after(std::uint64_t idle_ns);
void look_for_idle();

// Keeps `count` spans of so many slices more as dirty memory, until memory runs out or trim_region() takes it: made
// resident here, and not in use. How many.
std::size_t reserve_spans(std::uint32_t slices, std::size_t count);

// Gives dirty spans back to the system until `keep_bytes` are left; returns the bytes given back.
std::uint64_t trim_region(std::uint64_t keep_bytes);
// The same for those that were not used for so long, but for what is reserved.
std::uint64_t give_back_unused(std::uint64_t unused_ns);

// For memory that is about to be touched as a whole.
void make_resident(Slice first, std::uint32_t slices);

// Moves whole system pages between two spans in use; false: copy. `from` reads as zero afterwards.
bool can_move_pages();
bool move_pages(void* from, void* to, std::size_t bytes);

// While one lives no slice changes hands: a page stays what it is, whatever its owner does in it. Where a signal
// handler interrupted the thread that holds the region, that one holds still.
class RegionHeld {
 public:
  RegionHeld();
  // Does not wait for a thread that forks.
  struct UnlessForking {};
  explicit RegionHeld(UnlessForking);
  ~RegionHeld();
  RegionHeld(const RegionHeld&) = delete;
  RegionHeld& operator=(const RegionHeld&) = delete;

  explicit operator bool() const { return held_; }

 private:
  const bool locked_;
  const bool held_;
};

// From a slice on to the next that says what it is; `state` is what was read of its descriptor, the region held. The
// descriptor of a large block may be written meanwhile: any number will do.
__attribute__((no_sanitize("thread"))) inline std::uint32_t slices_to_next(const Page& page, PageState state,
                                                                           Slice end) {
  const std::uint32_t slices = page.slices;
  const bool is_long = state == PageState::free || state == PageState::large || state == PageState::absent;
  return is_long ? std::clamp(slices, 1u, end - slice_of(&page)) : 1;
}

// The process has a limit of its memory, and a good part of that is in use.
bool memory_is_tight();

// First slice of the window and the one behind the last that is mapped.
Slice region_begin();
Slice region_end();

// Applied to the chunks there are as well.
void advise_chunks(ChunkAdvice advice);
// From the next chunk on.
void replace_system(const System& system);
// From now on the system is asked for no more than the C library's malloc asks for: memory is mapped, and that is all.
// Nothing is given back or unmapped, not even what was chosen before.
void use_few_system_calls();

void region_before_fork();
void region_after_fork();
void region_after_fork_in_child();

}  // namespace cistern::host_pool
