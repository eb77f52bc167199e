// See heap.hpp: blocks freed by a thread that does not own their page.
//
// They are gathered in batches, one page each, and a batch costs one atomic exchange at the page. An inbox is a stack
// of pages with a link in each; entries only ever leave it all at once, so it needs no protection against reuse.
#include <algorithm>

#include "pool/heap/heap.hpp"

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

// The batch is empty before its blocks go: a child forked in between must not send them again.
void flush(RemoteBatch& batch) {
  if (!batch.page) return;
  const RemoteBatch sent = batch;
  batch.page = 0;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  send(*page_at(sent.page), sent.first, sent.last, sent.count);
}

// Only for who took the page from an inbox.
void collect(Heap& heap, Page& page) {
  const std::uint64_t remote = page.remote.exchange(0, std::memory_order_acq_rel);
  const auto count = static_cast<unsigned>(remote >> kCountShift);
  Block* const first = first_remote(remote);
  if (page.free_blocks) {
    Block* last = first;
    for (unsigned i = 1; i < count; ++i) last = last->next;
    last->next = page.free_blocks;
  }
  page.free_blocks = first;
  const unsigned handed_out = page.handed_out() - count;
  if (heap.classes[page.size_class].current == slice_of(&page)) {
    set_handed_out(page, handed_out, kQuiet);
  } else {
    settle(heap, page, handed_out);
  }
}

// For a message only: other threads may change the chain meanwhile. What does not carry the mark is the program's by
// now.
__attribute__((no_sanitize("thread"))) bool in_chain(const Page& page, const Block* first, const Block* block) {
  unsigned looks = 0;
  for (const Block* at = first; at && looks < kCapacityOfClass.of[page.size_class]; at = at->next, ++looks) {
    if (number_of_block(page, at) == kNoBlock || at->mark != free_mark) return false;
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
  block->mark = free_mark;
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
