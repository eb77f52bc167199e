// See heap.hpp: blocks freed by a thread that does not own their page.
//
// Small blocks are gathered in batches, one page each, and a batch costs one atomic exchange at the page. A medium
// block goes to its page immediately. An inbox is a stack of pages with a link in each. All entries leave it together,
// so it needs no protection against reuse.
#include <algorithm>

#include "pool/heap/medium.hpp"

namespace cistern::host_pool {
namespace {

constexpr std::size_t kBatchBytes = 4096;

unsigned batch_max(const Page& page) {
  return static_cast<unsigned>(std::clamp<std::size_t>(kBatchBytes / class_bytes(page.size_class), 1, 64));
}

void put_into_inbox(Page& page) {
  Heap& heap = *heap_at(page.heap.load(std::memory_order_acquire));
  Slice head = heap.inbox.load(std::memory_order_relaxed);
  do {
    page.inbox_next = head;
  } while (
      !heap.inbox.compare_exchange_weak(head, slice_of(&page), std::memory_order_release, std::memory_order_relaxed));
}

void send(Page& page, Block* first, Block* last, unsigned count) {
  std::uint64_t before = page.remote.load(std::memory_order_relaxed);
  std::uint64_t after;
  do {
    last->next = first_remote(before);
    after = (((before >> kCountShift) + count) << kCountShift) | address_of(first);
  } while (!page.remote.compare_exchange_weak(before, after, std::memory_order_acq_rel, std::memory_order_relaxed));
  if (!before) put_into_inbox(page);
}

// The batch is empty before its blocks go: a child forked in between must not send them again. Nothing in it leads to
// them later, when they are the program's.
void flush(RemoteBatch& batch) {
  if (!batch.page) return;
  const RemoteBatch sent = batch;
  batch.page = 0;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  batch.first = batch.last = nullptr;
  send(*page_at(sent.page), sent.first, sent.last, sent.count);
}

// The shorter list with the other behind it: it is followed to its end, and its blocks are in no cache.
Block* joined(Block* shorter, unsigned count, Block* other) {
  if (!shorter) return other;
  Block* last = shorter;
  while (--count > 0) last = last->next;
  last->next = other;
  return shorter;
}

// Only for who took the page from an inbox.
void collect(Heap& heap, Page& page) {
  if (page.state == PageState::medium) {
    // Not live before they leave `remote`: whoever looks, in a child forked in between too, counts them as freed.
    std::uint64_t freed = page.remote.load(std::memory_order_acquire);
    do {
      page.live = page.live & ~freed;
    } while (!page.remote.compare_exchange_weak(freed, 0, std::memory_order_acq_rel, std::memory_order_acquire));
    page.free_bits |= freed;
    return settle_medium(heap, page);
  }
  const std::uint64_t remote = page.remote.exchange(0, std::memory_order_acq_rel);
  const auto count = static_cast<unsigned>(remote >> kCountShift);
  Block* const first = first_remote(remote);
  const unsigned own_count = page.carved - page.handed_out();
  page.free_blocks =
      own_count < count ? joined(page.free_blocks, own_count, first) : joined(first, count, page.free_blocks);
  const unsigned handed_out = page.handed_out() - count;
  if (heap.classes[page.size_class].current == slice_of(&page)) {
    set_handed_out(page, handed_out, kQuiet);
  } else {
    settle(heap, page, handed_out);
  }
}

// For a message only: other threads may change the chain meanwhile. A block without the mark belongs to the program by
// now.
__attribute__((no_sanitize("thread"))) bool in_chain(const Page& page, const Block* first, const Block* block) {
  unsigned looks = 0;
  for (const Block* at = first; at && looks < kCapacityOfClass.of[page.size_class]; at = at->next, ++looks) {
    if (number_of_block(page, at) == kNoBlock || at->mark != the_pool.window.free_mark) return false;
    if (at == block) return true;
  }
  return false;
}

}  // namespace

__attribute__((no_sanitize("thread"))) bool is_listed_free(const Page& page, const Block* block) {
  const Slice slice = slice_of(&page);
  if (in_chain(page, page.free_blocks, block)) return true;
  if (in_chain(page, first_remote(page.remote.load(std::memory_order_acquire)), block)) return true;
  for (unsigned id = 1; id < heaps_end(); ++id) {
    const Heap* const heap = heap_at(id);
    if (!heap) continue;
    const ClassPages& own = heap->classes[page.size_class];
    if (own.current == slice &&
        (in_chain(page, heap->lists[page.size_class], block) || in_chain(page, own.rest, block)))
      return true;
    const RemoteBatch& batch = heap->batches[slice % kBatches];
    if (batch.page == slice && in_chain(page, batch.first, block)) return true;
  }
  return false;
}

__attribute__((no_sanitize("thread"))) bool was_never_given(const Page& page, const Block* block) {
  const Heap* const heap = heap_at(page.heap.load(std::memory_order_relaxed));
  if (!heap) return false;
  const ClassPages& own = heap->classes[page.size_class];
  return own.current == slice_of(&page) && own.handed_out == own.handed_out_when_new &&
         (in_chain(page, heap->lists[page.size_class], block) || in_chain(page, own.rest, block));
}

void free_remote(Page& page, Block* block) {
  block->mark = the_pool.window.free_mark;
  Heap* const heap = this_heap();
  if (!heap) {
    send(page, block, block, 1);
    return;
  }
  RemoteBatch& batch = heap->batches[slice_of(&page) % kBatches];
  if (batch.page != slice_of(&page)) {
    flush(batch);
    block->next = nullptr;
    batch.first = batch.last = block;
    batch.count = 1;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    batch.page = slice_of(&page);
  } else {
    block->next = batch.first;
    batch.first = block;
    ++batch.count;
  }
  if (batch.count >= batch_max(page)) flush(batch);
}

bool free_remote_medium(Page& page, unsigned number) {
  const std::uint64_t before = page.remote.fetch_or(bit_of(number), std::memory_order_acq_rel);
  if (before >> number & 1) return false;
  if (!before) put_into_inbox(page);
  return true;
}

void flush_batches(Heap& heap) {
  for (RemoteBatch& batch : heap.batches) flush(batch);
}

bool read_inbox(Heap& heap) {
  Slice at = heap.inbox.exchange(0, std::memory_order_acquire);
  if (!at) return false;
  while (at) {
    Page& page = *page_at(at);
    at = page.inbox_next;
    // Left to others since the sender looked up whose it is.
    if (page.heap.load(std::memory_order_relaxed) != heap.id) {
      put_into_inbox(page);
    } else {
      collect(heap, page);
    }
  }
  return true;
}

}  // namespace cistern::host_pool
