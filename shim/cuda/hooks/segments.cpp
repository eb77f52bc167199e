// Segments of the library's pools, and blocks that it cuts out of them (shim/cuda/segments.hpp): what the hooks do for
// whole allocations is done here for a part of one.
#include "shim/cuda/segments.hpp"

#include "shim/cuda/device_memory.hpp"
#include "shim/cuda/hooks/pooled.hpp"
#include "shim/cuda/hooks/stream_order.hpp"

namespace cistern::cuda {
namespace {

bool is_there(const SegmentPlace& at) {
  return at.context->alive.load() && at.context->epoch.load() == at.epoch && !at.context->ending.load();
}

BlockKind kind_of(const SegmentPlace& at) { return at.traits == kDeviceTraits ? BlockKind::device : BlockKind::pinned; }

const char* api_of(BlockKind kind) { return api_name(kind == BlockKind::device ? "cuMemAlloc_v2" : "cuMemHostAlloc"); }

// The record of the freed block that lay exactly there, or a new one.
Block* record_of(CudaState& s, const SegmentPlace& at, const CutBytes& cut) {
  if (Block* const former = s.blocks.claim(cut.address, cut.bytes, at.context, at.epoch)) {
    former->is_former.store(false, std::memory_order_relaxed);
    return former;
  }
  Block* const block = s.blocks.make();
  block->kind = kind_of(at);
  block->context = at.context;
  block->epoch = at.epoch;
  block->bytes = cut.bytes;
  block->traits = at.traits;
  block->in_segment = true;
  s.blocks.put(block, cut.address);
  return block;
}

}  // namespace

CUresult acquire_segment(const SegmentPlace& at, const WantedSegment& wanted, std::uintptr_t* first) {
  CudaState& s = state();
  BlockSource& source = s.pools.source();
  Device* const device = at.context->device;
  const Entered entered(s.functions, at.context->handle());
  if (!entered || !is_there(at)) return kInvalidContext;
  source.release_postponed();
  sample_device_memory(s, *device);
  const BlockSource::Request request{at.context, at.traits, wanted.bytes};
  Acquired<std::uintptr_t, CUresult> acquired{0, kOutOfMemory, false};
  Device* const limited = kind_of(at) == BlockKind::device ? device : nullptr;
  const auto acquire = [&] {
    acquired = source.acquire_segment(request);
    return acquired.error;
  };
  if (wanted.makes_room)
    acquired.error = with_room(s, limited, wanted.bytes, acquire);
  else if (!limited || limit_allows(*limited, wanted.bytes))
    acquire();
  if (!acquired.ok && !wanted.makes_room) return acquired.error;
  if (!acquired.ok) return note(s, acquired.error);
  const Inside inside(*at.context);
  if (!is_there(at) || acquired.chunk % ranges::kGranule) {
    source.release_segment(request, acquired.chunk);
    return is_there(at) ? kNotSupported : kInvalidContext;
  }
  source.share_of({kind_of(at), at.context, at.traits}).proportion.note_new(wanted.bytes);
  if (const std::optional<Segment> stale = s.segments.put(acquired.chunk, {request, at.epoch}))
    source.forget_segment(stale->of);
  *first = acquired.chunk;
  return kSuccess;
}

// Records of freed blocks go first: another thread may get the addresses immediately. While exiting, the driver is not
// called.
void release_segment(const SegmentPlace& at, std::uintptr_t first) {
  CudaState& s = state();
  const Inside inside(*at.context);
  if (phase() != Phase::running || !is_there(at)) return;
  const std::optional<Segment> segment = s.segments.take(first);
  if (!segment) return;
  if (Block* const former = s.blocks.claim(first, segment->of.bytes, at.context, at.epoch)) s.blocks.forget(former);
  s.pools.source().release_segment(segment->of, first);
}

CUresult begin_cut_block(const SegmentPlace& at, const CutBytes& cut) {
  CudaState& s = state();
  const Inside inside(*at.context);
  if (!is_there(at)) return kInvalidContext;
  Block* const block = record_of(s, at, cut);
  s.segments.count(*block, true);
  hand_out_part(s, block, cut.requested, api_of(block->kind), cut.hit);
  return kSuccess;
}

CUresult end_cut_block(const SegmentPlace& at, std::uintptr_t address, const CutFree& as, CutFreed* freed) {
  CudaState& s = state();
  const Inside inside(*at.context);
  Block* const block = s.blocks.table.find(address);
  if (!block || !block->in_segment || block->context != at.context || !is_there(at)) return kInvalidValue;
  const std::uint8_t further = block->further_streams.load();
  const std::uint64_t order = stream_traits(s, at.context, as.stream);
  const bool waits_now =
      (!order && is_gone(s, as.stream)) ||
      (as.on_stream ? further > 1 : !s.pools.are_deferred() || too_much_waits(s, *block, as.waiting_bytes));
  const CUresult waited = waits_now ? synchronise(s, at.context, s.contexts.current()) : kNotReady;
  if (waited != kSuccess && waited != kNotReady) return waited;
  BlockState state = BlockState::live;
  if (!block->state.compare_exchange_strong(state, BlockState::cached)) return kInvalidValue;
  freed->work_waits = waited != kSuccess;
  freed->is_retired = block->marked.load(std::memory_order_relaxed);
  if (freed->work_waits) use_markers(s, *block, as.stream);
  if (as.on_stream && !further && !s.captures.any()) freed->order = order;
  freed->others = s.pools.fence_for(block, false);
  block->freed_site = site_of_call(s, block->kind == BlockKind::device ? "cuMemFree_v2" : "cuMemFreeHost");
  account_death(s, block, {.kept = true, .waited = waited == kSuccess});
  s.segments.count(*block, false, freed->work_waits ? at.context->clock.last() + 1 : 0);
  block->marked.store(false, std::memory_order_relaxed);
  block->is_former.store(true, std::memory_order_relaxed);
  return kSuccess;
}

void cut_block_failed(const SegmentPlace& at, std::uint64_t bytes) {
  CudaState& s = state();
  const BlockKind kind = kind_of(at);
  add(s.account.counters_of(kind, at.context).failed);
  record_failed(s, recorded(kind, at.context), api_of(kind), bytes);
  report_out_of_memory(s, api_of(kind), kind == BlockKind::device ? Family::device : Family::pinned,
                       at.context->device->ordinal, bytes);
}

}  // namespace cistern::cuda
