// Spans of freed large blocks that a thread keeps for its next ones: no lock, no look for a fit. For the region they
// are in use; their descriptors say that they are no block.
//
// A place in the heap is filled after the block's descriptor was changed, and emptied before: a child that is forked in
// between has no span twice.
#pragma once
#include "pool/heap/heap.hpp"
#include "pool/heap/region.hpp"

namespace cistern::host_pool {

// Only the calling thread's heap, or one that no thread has.
inline Slice take_kept(Heap& heap, std::uint32_t slices) {
  if (slices > heap.kept_slices) return 0;
  for (KeptSpan& kept : heap.kept_spans) {
    if (kept.slices != slices || !kept.first) continue;
    const Slice first = kept.first;
    kept.first = 0;
    heap.kept_slices -= slices;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return first;
  }
  return 0;
}

inline void release_kept(Heap& heap, KeptSpan& kept) {
  if (!kept.first) return;
  const Slice first = kept.first;
  kept.first = 0;
  heap.kept_slices -= kept.slices;
  release_span(first, kept.slices);
}

inline void release_all_kept(Heap& heap) {
  for (KeptSpan& kept : heap.kept_spans) release_kept(heap, kept);
}

// Where memory runs out the kept ones go.
inline Span acquire_or_release_kept(Heap* heap, std::uint32_t slices, std::uint32_t alignment_slices = 1,
                                    Prefer prefer = Prefer::dirty, std::uint32_t replaced = 0) {
  const Span span = acquire_span(slices, alignment_slices, prefer, replaced);
  if (span.first || !heap || !heap->kept_slices || prefer == Prefer::dirty_only) return span;
  release_all_kept(*heap);
  return acquire_span(slices, alignment_slices, prefer, replaced);
}

// The oldest ones go where there is no room. False: the span is too long.
inline bool keep_span(Heap& heap, Slice first, std::uint32_t slices) {
  if (slices > kKeptSlicesMax) return false;
  KeptSpan* place = &heap.kept_spans[heap.next_kept];
  for (unsigned i = 0; place->first || heap.kept_slices + slices > kKeptSlicesMax; ++i) {
    release_kept(heap, heap.kept_spans[(heap.next_kept + i) % kKeptSpans]);
  }
  place->slices = slices;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  place->first = first;
  heap.kept_slices += slices;
  heap.next_kept = (heap.next_kept + 1) % kKeptSpans;
  return true;
}

}  // namespace cistern::host_pool
