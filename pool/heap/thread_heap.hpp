// The heap of one thread: its pages and its lists of free blocks, by class. heap.hpp has what is done with it.
//
// A page is, for its heap,
//   current  the one that the class's list was filled from; at most one per class;
//   partial  in the class's queue: it has free blocks. An empty page stays when it is the only one of its queue: the
//            class will want it again, or another class gets it before new memory is taken;
//   asleep   neither: all its blocks were handed out, or so many that it isn't worth a visit yet.
// The owner's frees count `until` down: a sleeping page reports when enough blocks came back to wake it, a partial one
// when it is empty. Blocks freed by other threads come in batches through the page's `remote` list. The thread that
// makes that list non-empty holds the page's token and puts the page into its heap's inbox. Only the thread that takes
// the page from an inbox may empty the list (remote.cpp). So a page is never in two inboxes, even if its owner changes
// meanwhile.
//
// The heap of a thread that ended waits for the next thread that starts. A thread that needs a page before takes the
// heap apart: its pages go to the orphanage, heap 0, guarded by a lock, and are adopted class by class before new
// memory is taken (threads.cpp).
#pragma once
#include <iterator>

#include "pool/heap/layout.hpp"

namespace cistern::host_pool {

// Small blocks that a thread may give to the program, per class. All of one list lie in one page, which counts them as
// handed out: a page hands blocks out to a list, and the list gives them to the program.
// For medium classes (medium.hpp): how many blocks wait, how many that the thread frees may join them, and how many of
// the waiting ones, the first, were never handed out.
struct HeapLists {
  Block* lists[kFirstMedium] = {};
  Relaxed<std::uint32_t> waiting[kMediumClasses] = {}, room[kMediumClasses] = {}, never_given[kMediumClasses] = {};
  std::uint8_t class_of_bytes[kDirectMax + 1] = {};
};

extern const HeapLists kNoLists;  // always empty: of threads that have no heap
// The calling thread's lists: a HeapLists that is part of a Heap, or kNoLists.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local HeapLists* thread_lists;

inline std::uintptr_t this_thread() { return address_of(__builtin_thread_pointer()); }

constexpr unsigned kBatches = 32;
constexpr unsigned kHeapsMax = 1 << 16;
constexpr Slice kAsleep = ~Slice{0};  // Page::next of a sleeping page
// Page::until of a current page: nothing is to be reported.
constexpr std::uint16_t kQuiet = 0x8000;

// A medium block that a thread may hand out. It is not live, and not among the free ones of its page.
struct WaitingBlock {
  std::uintptr_t block;  // complement of its address: it stays when the block has gone to the program, whose pointers
                         // alone are to be found by who looks for what leads to live memory
  std::uintptr_t place;  // its page's descriptor, plus its number there
};
constexpr unsigned kWaitingMax = 64;

// Blocks that moved when they grew by little, the last ones: complements of their addresses. One may be another block
// by now.
class GrownBlocks {
 public:
  void add(const void* block) { place(block) = ~address_of(block); }
  bool has(const void* block) { return place(block) == ~address_of(block); }

 private:
  std::uintptr_t& place(const void* block) {
    const std::uintptr_t address = address_of(block);
    return places_[(address / kGranule ^ address >> kSliceShift) % std::size(places_)];
  }
  std::uintptr_t places_[16] = {};
};

// See kept_span.hpp.
struct KeptSpan {
  Slice first = 0;  // 0: none
  std::uint32_t slices = 0;
};
constexpr std::uint32_t kKeptSlicesMax = 16;  // 1 MiB

// Blocks of one page that this thread freed and whose owner does not know it yet.
struct RemoteBatch {
  Slice page = 0;  // 0: none
  std::uint16_t count = 0;
  Block* first = nullptr;
  Block* last = nullptr;
};

// Medium classes use only `partial`, `handed_out` and `sample_due`.
struct ClassPages {
  Slice current = 0;
  Slice partial = 0;
  // Blocks behind the list in the current page, handed out too: the list was cut at the next sample.
  Block* rest = nullptr;
  std::uint32_t rest_count = 0;
  std::uint32_t clean_pages = 0;  // made of memory that was not resident, ever
  // Blocks put into the list, ever; medium: to those that wait, and room for more of them.
  std::uint64_t handed_out = 0;
  // As handed_out when the list was last filled with new blocks: while it is the same, none of the list was given yet.
  std::uint64_t handed_out_when_new = 0;
  // The block behind those that were counted towards the next sample is that sample. Drawn for this class: others, and
  // a later thread, count towards one of their own. 0: none is due; else one more than the doublings of its interval.
  std::uint8_t sample_due = 0;
};

// When the thread's sampling pace was last looked at, and what it is.
struct SamplePace {
  std::uint32_t since_ms = 0, samples = 0;  // since then
  std::uint8_t doublings = 0;               // of the interval
};

struct Heap : HeapLists {
  std::uint16_t id = 0;
  bool in_use = false;
  bool forked_away = false;  // its thread exists in the parent process only
  std::uintptr_t owner = 0;
  Slice pages = 0;  // all of them
  std::atomic<std::uint32_t> page_count{0};
  std::uint64_t kept_empty[2] = {};  // bit per class: its only partial page is empty
  // Bytes to hand out before the next sample or, then `looks_again`, before the pace is looked at. Drawn when a thread
  // gets the heap.
  std::int64_t until_sample = 0;
  bool looks_again = false;
  SamplePace pace;
  std::uint64_t random = 0;
  std::atomic<Slice> inbox{0};
  // Ever: large blocks, their bytes with what they grew by where they lay, blocks moved by reallocate.
  std::uint64_t large_allocations = 0, large_allocated_bytes = 0, moves = 0;
  GrownBlocks grown;
  KeptSpan kept;
  std::uint32_t last_freed_slices = 0;
  Heap* next_unused = nullptr;  // or the next heap that was started late
  std::uint64_t parked_ns = 0;
  // purge.hpp
  std::uint64_t next_look_ns = 0;
  std::uint32_t visits = 0;  // to pages for blocks
  bool look_is_due = false;
  bool question_is_due = false;  // whether memory is scarce
  bool look_at_all = false;      // the look that goes on is for what is in use too
  std::uint32_t trims_seen = 0;  // of other threads
  Slice to_look_at = 0;          // the page at which a look goes on; 0: none goes on
  Slice purging = 0;             // the page whose pieces the system is asked to take
  ClassPages classes[kClasses];
  RemoteBatch batches[kBatches];
  // Not written when a heap is made: most of it never holds anything, and the memory is zero already.
  WaitingBlock waiting_blocks[kMediumClasses][kWaitingMax];
};

// The calling thread's heap; null: none yet.
inline Heap* this_heap() { return thread_lists == &kNoLists ? nullptr : static_cast<Heap*>(thread_lists); }

}  // namespace cistern::host_pool
