// Device and pinned memory given back.
//
//   free_block -> freed already, or its context is gone -> the driver's own error
//              -> why_not_kept: a reason -> really_free: the program's own call
//              -> strict order: synchronise, as the driver's free waits, then the block may be given again
//              -> deferred order, or while a stream captures, or with other contexts alive: the pool keeps the block
//                 back until the clocks of these contexts say that their work has ended
//   free_other -> memory that is no block of a pool
#include <algorithm>

#include "shim/cuda/device_memory.hpp"
#include "shim/cuda/hooks/hooks.hpp"
#include "shim/cuda/hooks/pooled.hpp"
#include "shim/cuda/hooks/stream_order.hpp"
#include "shim/cuda/stream_turn.hpp"
#include "shim/process/misuse.hpp"

namespace cistern::cuda {

CUresult synchronise(CudaState& s, Context* context, const Context* current) {
  Through gate(s.gate);
  if (!gate) return kNotReady;
  const std::uint64_t number = context->clock.last();
  CUresult result = kSuccess;
  if (context == current) {
    result = s.functions.context_synchronize();
  } else {
    Entered entered(s.functions, context->handle());
    result = entered ? s.functions.context_synchronize() : kInvalidContext;
  }
  if (result == kSuccess) context->clock.synchronised(number);
  if (is_sticky(result)) poison(context);
  return result;
}

void use_markers(CudaState& s, const Block& block, CUstream stream) {
  s.pools.source().marks_own_context.store(true, std::memory_order_relaxed);
  note_unseen_work(s, block, stream);
}

bool too_much_waits(CudaState& s, const Block& freed, std::uint64_t waiting_elsewhere) {
  const Share& share = s.pools.source().share_of(freed.sort());
  const std::uint64_t most = std::max(share.proportion.most_live(), Proportion::kKeptAnyway);
  const auto is_over = [&] {
    return waiting_elsewhere + share.waiting_bytes.load(std::memory_order_relaxed) + freed.bytes > most;
  };
  if (!is_over()) return false;
  s.pools.settle();  // some may wait for a context in which no request comes
  if (freed.range) waiting_elsewhere = freed.range->pool().waiting_bytes();
  return is_over();
}

namespace {

std::uint64_t waiting_in_range(const Block& freed) { return freed.range ? freed.range->pool().waiting_bytes() : 0; }

DriverCalls& calls_of(CudaState& s, const Block& block) {
  return block.kind == BlockKind::device ? block.context->device->calls : s.pools.source().pinned_calls;
}

// The driver cannot free a part of a larger allocation, and the first part has the address of the whole. So the driver
// is asked to free an address that was never allocated. Its answer says whether it would refuse the call now, as it
// does while a stream captures or after a fault. A free of device memory waits for the work, as the driver's does.
CUresult free_part(CudaState& s, Block* piece, Unpooled reason) {
  const bool on_device = piece->kind == BlockKind::device;
  const CUresult answer =
      note(s, on_device ? driver().cuMemFree_v2(reinterpret_cast<CUdeviceptr>(unallocated_address()))
                        : driver().cuMemFreeHost(unallocated_address()));
  if (answer != kInvalidValue && answer != kSuccess && answer != kDeinitialized) {
    piece->state.store(BlockState::live, std::memory_order_release);
    return answer;
  }
  s.account.counters_of(piece->kind, piece->context).count_unpooled(reason);
  const bool waited = on_device && synchronise(s, piece->context, s.contexts.current()) == kSuccess;
  account_death(s, piece, {.kept = answer != kDeinitialized, .waited = waited});
  if (answer == kDeinitialized) return answer;
  s.pools.give(piece, s.pools.fence_for(piece, !waited));
  s.pools.source().release_postponed();
  return kSuccess;
}

// Makes the program's own free. The block leaves every table first: another thread may get its address immediately.
template <class Pass>
CUresult really_free(CudaState& s, Block* block, std::optional<Unpooled> reason, Pass pass) {
  if (block->is_part()) return free_part(s, block, *reason);
  s.blocks.hide(block);
  record_death(*block);
  const CUresult answer = note(s, pass());
  if (answer != kSuccess && answer != kDeinitialized) {
    record_birth(*block);
    s.blocks.show(block, BlockState::live);
    return answer;
  }
  KindCounters& counted = s.account.counters_of(block->kind, block->context);
  if (reason) counted.count_unpooled(*reason);
  add(counted.driver_frees);
  account_death(s, block, {.is_recorded = true});
  s.pools.source().freed_by_program(block);
  s.blocks.put_away(block);
  return answer;
}

// A double free: a line says so, and the program gets the driver's answer for an address that was never allocated. A
// capture or a fault may change that answer.
template <class Free>
CUresult freed_already(Block* block, const char* api, Free free) {
  report_double_free(api_name(api), block->address.load(), block->kind == BlockKind::device ? "device" : "pinned",
                     block->site, block->freed_site);
  const CUresult answer = free(unallocated_address());
  return answer == kSuccess ? kInvalidValue : answer;
}

// The reason why a live block of a pool goes back to the driver; nothing: the pool keeps it.
std::optional<Unpooled> why_not_kept(CudaState& s, const Block& block, const Context* current) {
  if (const auto reason = why_not_pooled(s, block.kind, block.requested, current)) return reason;
  if (block.marked.load(std::memory_order_relaxed)) return Unpooled::exported;
  if (block.context->poisoned.load()) return Unpooled::context_poisoned;
  return {};
}

// When the work of the block's context is waited for: now, or later, before the block is given again; `as_chosen` by
// CISTERN_DEVICE_ORDER.
struct Order {
  enum When { as_chosen, later, now } when;
  bool of_stream = false;    // the program names the stream, which may be capturing: no call of the driver is made then
  std::uint64_t traits = 0;  // the stream's: a later request on it need not wait
};

// Gives a block back in the order of a stream, without a call of the driver. If it waits for no other context, only
// requests on that stream find it.
void keep_in_order(CudaState& s, Block* block, std::uint64_t traits, std::uint64_t now_ns) {
  if (!s.captures.any() && block->range && s.pools.fence_for(block, false).empty())
    return s.pools.give_to_range(block, traits, now_ns);
  if (!s.captures.any() && !block->range)
    if (BlockSource::Fence of_others = s.pools.fence_for(block, false); of_others.empty()) {
      const PoolKey own = block->key();
      return s.pools.device().give({own.group, traits, own.bytes}, block, now_ns);
    }
  s.pools.give(block, s.pools.fence_for(block, true), now_ns);
}

// The work that a free leaves to be waited for. That of the current context may use the block, too.
BlockSource::Fence fence_behind(CudaState& s, const Block* block, Context* current, bool has_waited) {
  BlockSource::Fence fence = s.pools.fence_for(block, !has_waited);
  const auto is_of_current = [&](const ClockPoint& of) { return of.context == current; };
  if (!has_waited && current && std::none_of(fence.begin(), fence.end(), is_of_current))
    fence.push_back({current, current->clock.now()});
  return fence;
}

constexpr std::uint64_t kMuchKept = std::uint64_t{4} << 30;

bool much_is_kept(CudaState& s, const Block& freed) {
  const std::uint64_t reserved = s.pools.reserved_bytes(freed.sort());
  const std::uint64_t used = s.pools.source().share_of(freed.sort()).used_bytes();
  return reserved > used && reserved - used > kMuchKept;
}

// The driver would take it for an address inside of an allocation, or free the whole segment with all blocks in it.
CUresult refuse_cut(CudaState& s, const Block& block, const char* api) {
  const auto address = block.address.load(std::memory_order_relaxed);
  const bool on_device = block.kind == BlockKind::device;
  const CUresult answer =
      note(s, on_device ? driver().cuMemFree_v2(reinterpret_cast<CUdeviceptr>(unallocated_address()))
                        : driver().cuMemFreeHost(unallocated_address()));
  report_wrong_free(api_name(api), address, "pooled", block.site);
  return answer == kSuccess ? kInvalidValue : answer;
}

// The context that is current, and the one by which it is judged whether the pool keeps the block.
struct Where {
  Context *current, *judged_by;
};

template <class Pass>
CUresult free_block(CudaState& s, Block* block, const char* api, Order order, const Where& where, Pass pass) {
  Context* const current = where.current;
  BlockState state = BlockState::live;
  if (!block->context_is_there()) return pass();
  if (block->in_segment && block->state.load() == BlockState::live) return refuse_cut(s, *block, api);
  if (!block->state.compare_exchange_strong(state, BlockState::cached)) {
    if (state == BlockState::gone) return pass();
    return freed_already(block, api, [&](void* nowhere) {
      return note(s, block->kind == BlockKind::device ? driver().cuMemFree_v2(reinterpret_cast<CUdeviceptr>(nowhere))
                                                      : driver().cuMemFreeHost(nowhere));
    });
  }
  if (block->unpooled) return really_free(s, block, std::nullopt, pass);  // counted when it was allocated
  if (const auto reason = why_not_kept(s, *block, where.judged_by))
    if (*reason != Unpooled::capturing || !order.of_stream || block->marked.load(std::memory_order_relaxed))
      return really_free(s, block, *reason, pass);
  const bool as_chosen = order.when == Order::as_chosen;
  const bool waits = order.when == Order::now ||
                     (as_chosen && (!s.pools.are_deferred() || too_much_waits(s, *block, waiting_in_range(*block))));
  Context* const context = block->context;
  const CUresult waited = !waits ? kNotReady : synchronise(s, context, current);
  // The driver's own free may wait for the current context too, and its work may use the block.
  if (waited == kSuccess && current && current != context) synchronise(s, current, current);
  if (waited != kSuccess && waited != kNotReady) {
    calls_of(s, *block).syncs.fetch_add(1, std::memory_order_relaxed);
    return really_free(s, block, Unpooled::context_poisoned, pass);
  }
  block->freed_site = site_of_call(s, api);
  // Memory over the proportion goes back by the driver's own free, which waits. In deferred order that is done seldom.
  // If the program does not expect a wait, it is done only when very much is kept, and never while a stream captures.
  const bool has_waited = waited == kSuccess;
  const bool may_wait = has_waited || (!waits && s.gate.open() && (as_chosen || much_is_kept(s, *block)));
  const Sort sort = block->sort();
  const bool in_range = block->range;
  const std::uint64_t now_ns = coarse_now_ns();
  const bool stays = !has_waited || s.pools.keeps(*block, now_ns);
  account_death(s, block, {.kept = stays, .waited = has_waited, .now_ns = now_ns});
  if (!stays)
    s.pools.source().release(block);
  else if (order.traits)
    keep_in_order(s, block, order.traits, now_ns);
  else
    s.pools.give(block, fence_behind(s, block, current, has_waited), now_ns);
  if (may_wait && !in_range) s.pools.keep_in_proportion(sort, now_ns);
  s.pools.source().release_postponed();
  return kSuccess;
}

// Reports a pointer that the driver refused to free. It may be a live block of the other kind.
void report_refused(CudaState& s, const void* pointer, const char* api) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const Block* block = s.blocks.table.find(address);
  if (!block || block->state.load() != BlockState::live) return report_unknown_pointer(api_name(api), address);
  report_wrong_free(api_name(api), address, block->kind == BlockKind::device ? "device" : "pinned", block->site);
}

// Frees memory that is no block of a pool. It is tracked (managed, stream-ordered), or unknown: then the driver judges.
template <class Pass>
CUresult free_other(CudaState& s, const void* pointer, const char* api, Pass pass) {
  Tracked record;
  const bool known = s.account.take(pointer, record);
  const CUresult answer = note(s, pass());
  const bool gone = answer == kSuccess || answer == kDeinitialized;
  if (known) gone ? s.account.forget(pointer, record) : s.account.restore(pointer, record);
  if (!known && answer == kInvalidValue && pointer && phase() == Phase::running) report_refused(s, pointer, api);
  return answer;
}

// Where no block begins: memory of a segment is no allocation of the program's, so the driver judges another address.
CUdeviceptr unless_in_segment(CudaState& s, CUdeviceptr pointer) {
  return s.segments.kind_at(pointer) ? reinterpret_cast<CUdeviceptr>(unallocated_address()) : pointer;
}

// A free on a stream that captures becomes a free node of the graph. The memory is freed when that graph is launched.
// The graph that allocated it may be gone by then.
template <class Pass>
CUresult add_free_node(CudaState& s, CUgraph graph, CUdeviceptr pointer, const char* api, Pass pass) {
  const CUresult answer = note(s, pass());
  if (answer == kSuccess)
    s.graph_memory.frees(s, graph, pointer);
  else if (answer == kInvalidValue && pointer && !s.account.is_tracked(as_handle(pointer)) && phase() == Phase::running)
    report_refused(s, as_handle(pointer), api);
  return answer;
}

// The driver is asked to free an unallocated address, and refuses that address last: other faults of the call it
// reports before. A capture takes no memory that was not allocated in it.
template <class Free>
CUresult free_part_in_stream_order(CudaState& s, Block* part, CUstream stream, Zero zero, const Free& real) {
  const CUresult answer = note(s, real(reinterpret_cast<CUdeviceptr>(unallocated_address()), stream));
  if (answer != kInvalidValue || captured_graph(s, stream, zero == Zero::per_thread)) {
    part->state.store(BlockState::live, std::memory_order_release);
    return answer;
  }
  note_unseen_work(s, *part, stream);
  s.account.counters_of(part->kind, part->context).count_unpooled(Unpooled::stream_ordered_free);
  account_death(s, part, {.kept = true});
  s.pools.give(part, s.pools.fence_for(part, true));
  return kSuccess;
}

// cuMemFreeAsync: a block of a pool leaves the pool for good, since the driver frees it in the order of the stream. One
// that lies in a range goes back there behind the work of its context.
template <class Free>
CUresult free_in_stream_order(CUdeviceptr pointer, CUstream stream, Zero zero, const char* api, const Free& real) {
  CudaState& s = state();
  Block* const block = pointer ? s.blocks.table.find(pointer) : nullptr;
  const auto pass = [&] { return real(block ? pointer : unless_in_segment(s, pointer), stream); };
  if (!block || block->kind != BlockKind::device || !block->context_is_there()) {
    const CUgraph graph = captured_graph(s, stream, zero == Zero::per_thread);
    return graph ? add_free_node(s, graph, pointer, api, pass) : free_other(s, as_handle(pointer), api, pass);
  }
  if (block->in_segment && block->state.load() == BlockState::live) return refuse_cut(s, *block, api);
  BlockState live = BlockState::live;
  if (!block->state.compare_exchange_strong(live, BlockState::cached))
    return freed_already(block, api,
                         [&](void* nowhere) { return note(s, real(reinterpret_cast<CUdeviceptr>(nowhere), stream)); });
  if (block->is_part()) return free_part_in_stream_order(s, block, stream, zero, real);
  return really_free(s, block, Unpooled::stream_ordered_free, pass);
}

// --- The program's own calls, in the current context
Where here(CudaState& s) {
  Context* const current = s.contexts.current();
  return {current, current};
}

CUresult free_device_in(Order order, CUdeviceptr pointer) {
  CudaState& s = state();
  const auto pass = [&] { return driver().cuMemFree_v2(pointer); };
  Block* block = pointer ? s.blocks.table.find(pointer) : nullptr;
  if (block && block->kind == BlockKind::device) return free_block(s, block, "cuMemFree_v2", order, here(s), pass);
  return free_other(s, reinterpret_cast<const void*>(pointer), "cuMemFree_v2",
                    [&] { return driver().cuMemFree_v2(unless_in_segment(s, pointer)); });
}

CUresult free_pinned_in(Order order, void* pointer) {
  CudaState& s = state();
  const auto pass = [&] { return driver().cuMemFreeHost(pointer); };
  Block* block = pointer ? s.blocks.table.find(reinterpret_cast<std::uintptr_t>(pointer)) : nullptr;
  if (block && block->kind == BlockKind::pinned) return free_block(s, block, "cuMemFreeHost", order, here(s), pass);
  const auto other = unless_in_segment(s, reinterpret_cast<CUdeviceptr>(pointer));
  return free_other(s, pointer, "cuMemFreeHost",
                    [&] { return driver().cuMemFreeHost(reinterpret_cast<void*>(other)); });
}

void use_markers(std::uintptr_t address, CUstream stream) {
  CudaState& s = state();
  s.pools.source().marks_own_context.store(true, std::memory_order_relaxed);
  if (const Block* const block = s.blocks.table.find(address)) use_markers(s, *block, stream);
}

// --- The library's, in the context of the block
Block* device_block_at(CudaState& s, CUdeviceptr pointer) {
  Block* const block = pointer ? s.blocks.table.find(pointer) : nullptr;
  return block && block->kind == BlockKind::device ? block : nullptr;
}

// Only a free that waits asks for the context that is current: the driver's own would wait for that one as well.
CUresult free_at(CudaState& s, Block* block, Order order, CUdeviceptr pointer) {
  Context* const own = block->context;
  CUcontext current = nullptr;
  if (order.when != Order::later) s.functions.context_current(&current);
  return free_block(s, block, "cuMemFree_v2", order, {current ? s.contexts.known(current) : nullptr, own}, [&] {
    const Entered entered(s.functions, own->handle());
    return entered ? driver().cuMemFree_v2(pointer) : kInvalidContext;
  });
}

// `free(block)` for a block whose context is there. Other memory is the driver's matter.
template <class Free>
CUresult free_where_it_lies(CudaState& s, CUdeviceptr pointer, Free free) {
  Block* const block = device_block_at(s, pointer);
  const CUresult seen = block ? s.contexts.look_at(*block->context) : kContextIsDestroyed;
  if (seen == kContextIsDestroyed) return free_device_in({Order::as_chosen}, pointer);
  return seen == kSuccess ? free(block) : seen;
}

}  // namespace

CUresult free_device(CUdeviceptr pointer) { return free_device_in({Order::as_chosen}, pointer); }

bool is_device_block(CUdeviceptr pointer) { return device_block_at(state(), pointer); }

CUresult free_device_now(CUdeviceptr pointer) {
  CudaState& s = state();
  return free_where_it_lies(s, pointer, [&](Block* block) { return free_at(s, block, {Order::as_chosen}, pointer); });
}

CUresult free_device_later(CUdeviceptr pointer, CUstream stream) {
  CudaState& s = state();
  return free_where_it_lies(s, pointer, [&](Block* block) {
    if (is_gone(s, stream)) return free_at(s, block, {Order::now}, pointer);
    use_markers(s, *block, stream);
    return free_at(s, block, {Order::later}, pointer);
  });
}

CUresult free_pinned_later(void* pointer, CUstream stream) {
  if (is_gone(state(), stream)) return free_pinned_in({Order::now}, pointer);
  use_markers(reinterpret_cast<std::uintptr_t>(pointer), stream);
  return free_pinned_in({Order::later, true}, pointer);
}

// If further streams use the block, it waits for all work of its context. If one of them has no known handle, or this
// one is gone, the caller waits now.
CUresult free_device_on(CUstream stream, CUdeviceptr pointer) {
  CudaState& s = state();
  return free_where_it_lies(s, pointer, [&](Block* block) {
    const std::uint64_t traits = stream_traits(s, block->context, stream);
    const std::uint8_t further = block->further_streams.load();
    if (further > 1 || (!traits && is_gone(s, stream))) return free_at(s, block, {Order::now}, pointer);
    use_markers(s, *block, stream);
    return free_at(s, block, {Order::later, true, further ? 0 : traits}, pointer);
  });
}

namespace hook {

CUresult cuMemFree_v2(CUdeviceptr pointer) { return free_device(pointer); }

CUresult cuMemFreeHost(void* pointer) { return free_pinned_in({Order::as_chosen}, pointer); }

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  return free_in_stream_order(pointer, stream, Zero::legacy, "cuMemFreeAsync", driver().cuMemFreeAsync);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream) {
  return free_in_stream_order(pointer, stream, Zero::per_thread, "cuMemFreeAsync_ptsz", driver().cuMemFreeAsync_ptsz);
}

}  // namespace hook
}  // namespace cistern::cuda
