// See heap.hpp: heaps of starting and ending threads, the orphanage, fork.
//
// The heap of a thread that ended is parked as it is, pages, lists and all, for the next thread that starts. Its pages
// go to the orphanage, page by page, when a thread needs one sooner than a heap, or when many are parked.
//
// A heap's memory is never given back, so a late message finds an inbox; a new thread takes an unused heap. The key
// whose destructor ends a heap is made early (prepare_thread_ends), so that setting it does not allocate.
#include "pool/heap/threads.hpp"

#include <limits.h>
#include <pthread.h>

#include <bitset>
#include <new>

#include "pool/base/forked.hpp"
#include "pool/base/own_mapping.hpp"
#include "pool/heap/heap_account.hpp"
#include "pool/heap/kept_span.hpp"
#include "pool/heap/medium.hpp"
#include "pool/heap/purge.hpp"
#include "pool/heap/region.hpp"
#include "pool/heap/samples.hpp"

namespace cistern::host_pool {
namespace {

constexpr unsigned kParkedMax = 16;
// The most that parked heaps keep together. Beyond it a heap is parked without its free pages: other threads may need
// them sooner.
constexpr std::uint32_t kParkedPagesMax = 256;

constexpr ThreadHeaps& threads = the_pool.threads;
constexpr Heap& orphanage = threads.orphanage;

[[gnu::tls_model("initial-exec")]] constinit thread_local bool thread_has_ended = false;

Heap* new_heap() {
  if (Heap* const heap = threads.unused) {
    threads.unused = heap->next_unused;
    return heap;
  }
  const unsigned id = heaps_end();
  if (id == kHeapsMax) return nullptr;
  void* const memory = map_own_memory(sizeof(Heap));
  if (!memory) return nullptr;
  auto* const heap = new (memory) Heap;
  heap->id = static_cast<std::uint16_t>(id);
  heap->random = the_pool.window.free_mark * (2 * id + 1);
  for (unsigned bytes = 0; bytes <= kDirectMax; ++bytes)
    heap->class_of_bytes[bytes] = static_cast<std::uint8_t>(class_of(bytes));
  threads.by_id[id].store(heap, std::memory_order_release);
  threads.made.store(id, std::memory_order_release);
  return heap;
}

// A thread that allocates when its heap has ended (in a destructor that runs after ours) gets one that nothing will
// end. A later thread at the same place in memory takes it over.
Heap* late_heap_of_this_place() {
  for (Heap** at = &threads.late; *at; at = &(*at)->next_unused) {
    Heap* const heap = *at;
    if (heap->owner != this_thread()) continue;
    *at = heap->next_unused;
    return heap;
  }
  return nullptr;
}

void set_owner(Heap& heap, std::uintptr_t owner) {
  heap.owner = owner;
  for (Slice at = heap.pages; at; at = page_at(at)->heap_next)
    page_at(at)->owner.store(owner, std::memory_order_relaxed);
}

// Frees by the thread itself are remote from now on.
void park(Heap& heap) {
  set_owner(heap, 0);
  heap.in_use = false;
  heap.parked_ns = region_system.now_ns();
  heap.next_unused = threads.parked;
  threads.parked = &heap;
  threads.parked_count.store(threads.parked_count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  threads.parked_pages.store(
      threads.parked_pages.load(std::memory_order_relaxed) + heap.page_count.load(std::memory_order_relaxed),
      std::memory_order_relaxed);
}

// `at`: where it hangs in their list, which begins with the one that was parked last. Null: there is none.
Heap* unpark(Heap*& at = threads.parked) {
  Heap* const heap = at;
  if (!heap) return nullptr;
  at = heap->next_unused;
  threads.parked_count.store(threads.parked_count.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  threads.parked_pages.store(
      threads.parked_pages.load(std::memory_order_relaxed) - heap->page_count.load(std::memory_order_relaxed),
      std::memory_order_relaxed);
  return heap;
}

unsigned count_blocks(const Block* block) {
  unsigned count = 0;
  for (; block; block = block->next) ++count;
  return count;
}

// The chain's blocks become free blocks of the page: they were never the program's.
void put_back(Page& page, Block* first) {
  if (!first) return;
  Block* last = first;
  unsigned count = 1;
  for (; last->next; last = last->next) ++count;
  last->next = page.free_blocks;
  page.free_blocks = first;
  set_handed_out(page, page.handed_out() - count, kQuiet);
}

// A page changes from one heap to another, in no queue of either.
void move_page(Heap& from, Heap& to, Page& page) {
  unlink_page(from, page);
  link_page(to, page);
  page.owner.store(to.owner, std::memory_order_relaxed);
  page.heap.store(to.id, std::memory_order_release);
}

void leave_to_orphanage(Heap& heap) {
  while (heap.pages) {
    Page& page = *page_at(heap.pages);
    if (page.next != kAsleep) remove_partial(heap, page);
    move_page(heap, orphanage, page);
    settle(orphanage, page);
  }
}

// Empty pages have no reason to wait for an heir.
void tidy_orphanage() {
  read_inbox(orphanage);
  retire_kept_pages(orphanage);
}

void make_unused(Heap& heap) {
  heap.in_use = heap.forked_away = false;
  heap.owner = 0;
  heap.look_is_due = false;
  heap.to_look_at = heap.purging = 0;
  heap.next_unused = threads.unused;
  threads.unused = &heap;
}

// Takes apart a heap that no thread owns.
void dissolve(Heap& heap) {
  put_back_lists(heap);
  read_inbox(heap);
  leave_to_orphanage(heap);
  tidy_orphanage();
  read_inbox(heap);  // frees that came meanwhile are passed on
  make_unused(heap);
}

// The free blocks of a page, gathered from lists that a thread may have been about to change when the fork cut it off.
// A chain may lie in two lists, so each block counts once, and no link out of the page is followed.
class FreeBlocks {
 public:
  explicit FreeBlocks(const Page& page) : page_(page) {}

  // Returns how many were added.
  unsigned add(Block* chain) {
    unsigned added = 0;
    while (chain) {
      const unsigned number = number_of_block(page_, chain);
      if (number == kNoBlock || seen_[number]) break;
      seen_.set(number);
      Block* const block = chain;
      chain = block->next;
      if (is_purged(page_, number)) continue;  // the thread was taking it out of the list
      block->next = first_;
      first_ = block;
      if (!last_) last_ = block;
      ++added;
    }
    count_ += added;
    return added;
  }
  Block* first() const { return first_; }
  Block* last() const { return last_; }
  unsigned count() const { return count_; }

 private:
  const Page& page_;
  unsigned count_ = 0;
  Block* first_ = nullptr;
  Block* last_ = nullptr;
  std::bitset<kSliceBytes / kGranule> seen_;
};

// The fork left the heap's thread behind: the free blocks of its pages are gathered again. Where the thread was cut off
// between two steps, its lists and numbers disagree, and the counts made from the numbers are corrected.
void reclaim(Heap& heap) {
  std::int64_t live = 0, allocations[kClasses] = {};
  for (unsigned id = 0; id < kFirstMedium; ++id) live += allocations[id] = listed_blocks(heap, id);
  for (unsigned medium = 0; medium < kMediumClasses; ++medium) forget_waiting(heap, medium);
  Slice next = 0;
  for (Slice at = heap.pages; at; at = next) {
    Page& page = *page_at(at);
    next = page.heap_next;
    if (page.state == PageState::medium) {
      free_what_is_not_live(page);
      page.next = kAsleep;
      link_page(orphanage, page);
      page.heap.store(0, std::memory_order_release);
      settle(orphanage, page);
      continue;
    }
    ClassPages& own = heap.classes[page.size_class];
    FreeBlocks free_blocks(page);
    if (own.current == at) {
      const unsigned listed = free_blocks.add(heap.lists[page.size_class]) + free_blocks.add(own.rest);
      own.handed_out -= listed;
      allocations[page.size_class] -= listed;
    }
    free_blocks.add(page.free_blocks);
    page.free_blocks = free_blocks.first();
    page.next = kAsleep;
    link_page(orphanage, page);
    page.heap.store(0, std::memory_order_release);
    const unsigned handed_out = page.carved - free_blocks.count();
    live += static_cast<int>(handed_out) - static_cast<int>(std::min<unsigned>(page.handed_out(), page.carved));
    settle(orphanage, page, handed_out);
  }
  release_kept(heap);
  heap.pages = 0;
  heap.page_count.store(0, std::memory_order_relaxed);
  for (Block*& list : heap.lists) list = nullptr;
  for (unsigned id = 0; id < kClasses; ++id) {
    const std::uint64_t handed_out = heap.classes[id].handed_out;
    heap.classes[id] = ClassPages{};
    heap.classes[id].handed_out = handed_out;
  }
  heap.kept_empty[0] = heap.kept_empty[1] = 0;
  for (RemoteBatch& batch : heap.batches) {
    if (!batch.page) continue;
    FreeBlocks sent(*page_at(batch.page));
    sent.add(batch.first);
    live += static_cast<int>(batched_blocks(batch).blocks) - static_cast<int>(sent.count());
    batch.first = sent.first();
    batch.last = sent.last();
    batch.count = static_cast<std::uint16_t>(sent.count());
    if (!batch.count) batch.page = 0;
  }
  flush_batches(heap);
  read_inbox(heap);
  make_unused(heap);
  shift_account(allocations, live);
}

// Under the heaps' lock.
void reclaim_all() {
  if (!threads.reclaim_is_due.load(std::memory_order_relaxed)) return;
  for (unsigned id = 1; id < heaps_end(); ++id)
    if (Heap* const heap = heap_at(id); heap && heap->forked_away) {
      count_forked_away(*heap);
      reclaim(*heap);
    }
  tidy_orphanage();
  threads.reclaim_is_due.store(false, std::memory_order_relaxed);
}

// The destructor runs in each round of the C library's: only the last one ends the heap, because destructors of the
// program may still allocate in the others.
void end_round(void* value) {
  const auto round = reinterpret_cast<std::uintptr_t>(value);
  if (round < PTHREAD_DESTRUCTOR_ITERATIONS) {
    pthread_setspecific(threads.end_key, reinterpret_cast<void*>(round + 1));
  } else {
    end_heap();
    thread_has_ended = true;
  }
}

}  // namespace

void reclaim_forked_away() {
  if (!threads.reclaim_is_due.load(std::memory_order_relaxed) || locks_held > 0) [[likely]]
    return;
  {
    const LockedUnlessForking hold(threads.lock);
    if (hold) reclaim_all();
  }
  do_chosen_work();
}

void put_back_lists(Heap& heap) {
  put_back_waiting(heap);
  for (unsigned id = 0; id < kFirstMedium; ++id) {
    ClassPages& own = heap.classes[id];
    if (!own.current) continue;
    Page& page = *page_at(own.current);
    own.handed_out -= count_blocks(heap.lists[id]) + own.rest_count;
    put_back(page, heap.lists[id]);
    put_back(page, own.rest);
    heap.lists[id] = own.rest = nullptr;
    own.rest_count = 0;
    own.sample_due = 0;
    own.current = 0;
    settle(heap, page, page.handed_out());
  }
}

[[gnu::hot]] void prepare_thread_ends() {
  threads.by_id[0].store(&orphanage, std::memory_order_release);
  if (pthread_key_create(&threads.end_key, end_round) == 0) threads.key_made.store(true, std::memory_order_release);
}

Heap* start_heap() {
  if (!start_region()) return nullptr;
  threads.by_id[0].store(&orphanage, std::memory_order_release);
  Heap* heap;
  {
    const LockedUnlessForking hold(threads.lock);
    if (!hold) return nullptr;
    reclaim_all();
    heap = late_heap_of_this_place();
    if (!heap) heap = unpark();
    if (!heap) heap = new_heap();
    if (!heap) return nullptr;
    heap->in_use = true;
    if (heap->owner != this_thread()) set_owner(*heap, this_thread());
    heap->trims_seen = the_pool.purges.trims.load(std::memory_order_relaxed);  // a trim leaves no parked heap
    if (thread_has_ended) {
      heap->next_unused = threads.late;
      threads.late = heap;
    }
  }
  begin_distance(*heap);
  thread_lists = heap;
  if (!thread_has_ended && threads.key_made.load(std::memory_order_acquire))
    pthread_setspecific(threads.end_key, reinterpret_cast<void*>(1));
  return heap;
}

void end_heap() {
  Heap* const heap = this_heap();
  if (!heap) return;
  thread_lists = const_cast<HeapLists*>(&kNoLists);
  flush_batches(*heap);
  read_inbox(*heap);
  const bool has_many =
      threads.parked_pages.load(std::memory_order_relaxed) + heap->page_count.load(std::memory_order_relaxed) >
      kParkedPagesMax;
  if (has_many) put_back_lists(*heap);
  release_kept(*heap);
  retire_kept_pages(*heap);
  if (has_many) release_ended();
  {
    Locked hold(threads.lock);
    park(*heap);
    if (threads.parked_count.load(std::memory_order_relaxed) > kParkedMax) dissolve(*unpark());
  }
  do_chosen_work();
}

Page* adopt(Heap& heap, unsigned id) {
  if (!orphanage.page_count.load(std::memory_order_relaxed) && !orphanage.inbox.load(std::memory_order_relaxed) &&
      !threads.parked_count.load(std::memory_order_relaxed))
    return nullptr;
  const LockedUnlessForking hold(threads.lock);
  if (!hold) return nullptr;
  read_inbox(orphanage);
  while (!orphanage.classes[id].partial) {
    Heap* const parked = unpark();
    if (!parked) return nullptr;
    dissolve(*parked);
  }
  Page& page = *page_at(orphanage.classes[id].partial);
  remove_partial(orphanage, page);
  move_page(orphanage, heap, page);
  if (!is_medium(id)) set_handed_out(page, page.handed_out(), kQuiet);
  return &page;
}

namespace {

// All pages that threads left which ended so long ago, in a heap that no thread has; null: there are none, or no memory
// for the heap. A thread that frees one of their blocks sends it to the heap's inbox.
Heap* take_orphans(std::uint64_t unused_ns) {
  const Locked hold(threads.lock);
  const std::uint64_t now = region_system.now_ns();
  Heap** at = &threads.parked;
  while (*at && now - (*at)->parked_ns < unused_ns) at = &(*at)->next_unused;
  while (Heap* const parked = unpark(*at)) dissolve(*parked);
  tidy_orphanage();
  Heap* const keeper = orphanage.pages ? new_heap() : nullptr;
  if (!keeper) return nullptr;
  keeper->in_use = true;
  while (orphanage.pages) {
    Page& page = *page_at(orphanage.pages);
    if (page.next != kAsleep) remove_partial(orphanage, page);
    move_page(orphanage, *keeper, page);
    settle(*keeper, page);
  }
  return keeper;
}

std::uint64_t purge_orphans(std::uint64_t unused_ns) {
  Heap* const keeper = take_orphans(unused_ns);
  if (!keeper) return 0;
  const std::uint64_t bytes = unused_ns ? purge_quiet(*keeper) : purge(*keeper);
  const Locked hold(threads.lock);
  if (!keeper->forked_away) dissolve(*keeper);  // in a child, it is reclaimed like those of other threads
  return bytes;
}

// All heaps: those of other threads when these next allocate.
std::uint64_t purge_heaps(Why why) {
  std::uint64_t bytes = 0;
  if (Heap* const heap = this_heap()) {
    flush_batches(*heap);
    bytes += purge(*heap);
  }
  bytes += purge_orphans(0);
  the_pool.purges.why_trimmed.store(why, std::memory_order_relaxed);
  const std::uint32_t trims = the_pool.purges.trims.fetch_add(1, std::memory_order_relaxed);
  if (Heap* const heap = this_heap()) heap->trims_seen = trims + 1;
  return bytes;
}

std::uint64_t counted(Why why, std::uint64_t bytes) {
  note_returned(why, bytes);
  return bytes;
}

}  // namespace

unsigned long trim(unsigned long keep_bytes) {
  const std::uint64_t bytes = purge_heaps(Why::asked);
  return counted(Why::asked, bytes + trim_region(keep_bytes));
}

std::uint64_t relieve() {
  const std::uint64_t bytes = purge_heaps(Why::pressure);
  return counted(Why::pressure, bytes + give_back_unused(0));
}

std::uint64_t trim_unused(std::uint64_t unused_ns) {
  const std::uint64_t bytes = purge_orphans(unused_ns);
  return counted(Why::maintenance, bytes + give_back_unused(unused_ns));
}

void threads_before_fork() {
  threads.lock.lock_for_fork();
  samples_before_fork();
  region_before_fork();
}

void threads_after_fork_in_parent() {
  region_after_fork();
  samples_after_fork();
  threads.lock.unlock_after_fork();
}

// The heaps are reclaimed when a second thread starts, not before: most children have only one until they exec, and
// going through all lists would take them long. Until then no thread can be mistaken for one that does not exist.
void threads_after_fork_in_child() {
  region_after_fork_in_child();
  samples_after_fork_in_child();
  threads.lock.unlock_after_fork();
  Heap* const own = this_heap();
  bool own_is_late = false;
  for (const Heap* at = threads.late; at; at = at->next_unused) own_is_late |= at == own;
  set_in_child(threads.late, own_is_late ? own : nullptr);
  if (own_is_late) own->next_unused = nullptr;
  for (unsigned id = 1; id < heaps_end(); ++id) {
    Heap* const heap = heap_at(id);
    if (!heap || heap == own || !heap->in_use) continue;
    heap->forked_away = true;
    set_owner(*heap, 0);  // a new thread may lie where this one lay
    threads.reclaim_is_due.store(true, std::memory_order_relaxed);
  }
}

}  // namespace cistern::host_pool
