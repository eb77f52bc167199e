// The memory of the large block that a thread freed last, kept for the next one: no lock, no look for a fit. Only where
// the thread freed a block of this length before it too, and only until its next large block, whatever that one's
// length: then a length that does not fit leaves no memory idle. For the region the span is in use; its descriptor says
// that it is no block.
//
// The span is noted after the block's descriptor was changed, and forgotten before: a child that is forked in between
// does not have it twice.
#pragma once
#include "pool/heap/heap.hpp"
#include "pool/heap/region.hpp"

namespace cistern::host_pool {

// Only the calling thread's heap, or one that no thread has.
inline void release_kept(Heap& heap) {
  const Slice first = heap.kept.first;
  if (!first) return;
  heap.kept.first = 0;
  release_span(first, heap.kept.slices);
}

// 0: none of this length.
inline Slice take_kept(Heap& heap, std::uint32_t slices) {
  const Slice first = heap.kept.first;
  if (!first || heap.kept.slices != slices) return 0;
  heap.kept.first = 0;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return first;
}

// False: release it.
inline bool keep_span(Heap& heap, Slice first, std::uint32_t slices) {
  const std::uint32_t before = heap.last_freed_slices;
  heap.last_freed_slices = slices;
  if (slices != before || slices > kKeptSlicesMax) return false;
  release_kept(heap);
  heap.kept.slices = slices;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  heap.kept.first = first;
  return true;
}

}  // namespace cistern::host_pool
