// CUDA's device and pinned memory in segments, as the library's pools cut them (shim/library/segments.hpp).
#include "shim/cuda/library/segments.hpp"

#include "shim/cuda/device_memory.hpp"
#include "shim/cuda/graph_memory.hpp"
#include "shim/cuda/hooks/pooled.hpp"
#include "shim/cuda/hooks/stream_order.hpp"
#include "shim/cuda/library/answers.hpp"
#include "shim/cuda/library/devices.hpp"
#include "shim/cuda/state.hpp"

namespace cistern::cuda {
namespace {

using library::BlockRequest;
using library::CutBlock;
using library::CutEnd;
using library::InOrder;
using library::Place;

SegmentPlace place_of(const Place& place) {
  return {reinterpret_cast<Context*>(place.context), static_cast<std::uint32_t>(place.life), place.traits};
}

int device_of(const BlockRequest& request) {
  return request.where & CISTERN_ON_DEVICE ? request.device : CISTERN_CURRENT;
}

// The graph that a stream captures keeps the addresses of blocks. Their frees and allocations are the driver's matter.
// A stream captures, too, after it has waited for an event of one that does.
bool is_for_graph(CudaState& s, const BlockRequest& request) {
  auto* const stream = static_cast<CUstream>(request.order.stream);
  if (!request.order.of_stream || !asks_if_captured(s, stream, false)) return false;
  const OnDevice here(device_of(request));
  return may_be_captured(s, stream, false);
}

bool may_cut(const BlockRequest& request) {
  if (start_driver() != kSuccess) return false;
  CudaState& s = state();
  const BlockKind kind = request.memory->kind == CISTERN_DEVICE ? BlockKind::device : BlockKind::pinned;
  // Without events nothing says when the memory is free for other work: the driver's own free waits.
  if (s.missing.for_pools || s.missing.for_order) return false;
  return !why_size_not_pooled(s, kind, request.bytes) && !is_for_graph(s, request);
}

cistern_status find(const BlockRequest& request, Place* place) {
  Context* context = nullptr;
  if (const CUresult answer = find_context(device_of(request), &context); answer != kSuccess) return status_of(answer);
  if (context->poisoned.load(std::memory_order_relaxed)) {
    const Entered entered(state().functions, context->handle());
    const CUresult fault = state().functions.context_synchronize();  // it answers with the fault
    if (fault != kSuccess) return status_of(fault);
  }
  const bool is_device = request.memory->kind == CISTERN_DEVICE;
  *place = {reinterpret_cast<std::uintptr_t>(context), context->epoch.load(),
            is_device ? kDeviceTraits : static_cast<std::uint32_t>(request.flags)};
  return CISTERN_OK;
}

bool is_there(const Place& place) {
  const SegmentPlace at = place_of(place);
  return at.context->alive.load() && at.context->epoch.load() == at.epoch;
}

cistern_status begin(const Place& place, const CutBlock& block) {
  return status_of(begin_cut_block(place_of(place), {block.address, block.bytes, block.wanted_bytes, block.was_there}));
}

cistern_status end(const Place& place, std::uintptr_t address, void* queue, InOrder order, CutEnd* end) {
  CutFreed freed;
  const bool on_stream = order.of_stream || queue;
  auto* const stream = static_cast<CUstream>(order.of_stream ? order.stream : queue);
  const CUresult seen = state().contexts.look_at(*place_of(place).context);
  if (seen != kSuccess && seen != kContextIsDestroyed) return status_of(seen);
  const CUresult answer = end_cut_block(place_of(place), address, {on_stream, stream, end->waiting_bytes}, &freed);
  if (answer != kSuccess) return status_of(answer);
  end->work_waits = freed.work_waits;
  end->order = freed.order ? freed.order : ranges::kContextOrder;
  end->is_retired = freed.is_retired;
  for (const ClockPoint& of : freed.others)
    end->others.push_back({reinterpret_cast<std::uintptr_t>(of.context), of.number});
  return CISTERN_OK;
}

// While a stream captures, the graph would use the block again later.
ranges::Order order_of(const Place& place, void* stream) {
  CudaState& s = state();
  if (s.captures.any()) return ranges::kAnyOrder;
  return stream_traits(s, place_of(place).context, static_cast<CUstream>(stream));
}

Settled settled(const Place& place, library::WorkFence& fence) {
  BlockSource::Fence points;
  for (const library::WorkUpTo& of : fence) points.push_back({reinterpret_cast<Context*>(of.context), of.number});
  const Settled answer = state().pools.source().settled(*place_of(place).context, points);
  fence.resize(points.size());
  return answer;
}

}  // namespace

extern constexpr library::KindSegments segments = {
    .may_cut = may_cut,
    .find = find,
    .is_there = is_there,
    .device_of = [](const Place& place) { return place_of(place).context->device->ordinal; },
    .acquire =
        [](const Place& place, std::size_t bytes, Shortage shortage, std::uintptr_t* first) {
          return status_of(acquire_segment(place_of(place), {bytes, shortage == Shortage::makes_room}, first));
        },
    .release = [](const Place& place, std::uintptr_t first) { release_segment(place_of(place), first); },
    .begin = begin,
    .end = end,
    .failed = [](const Place& place, std::size_t bytes) { cut_block_failed(place_of(place), bytes); },
    .order_of = order_of,
    .now = [](const Place& place) { return place_of(place).context->clock.now(); },
    .settled = settled,
};
static_assert(is_whole(segments));

}  // namespace cistern::cuda
