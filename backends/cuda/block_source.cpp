// See block_source.hpp.
#include "backends/cuda/block_source.hpp"

#include <algorithm>
#include <new>

#include "backends/cuda/device_range.hpp"

namespace cistern::cuda {
namespace {

constexpr std::uint64_t kSlabBytes = std::uint64_t{256} * 1024;

BlockKind kind_of(std::uint64_t traits) { return traits == kDeviceTraits ? BlockKind::device : BlockKind::pinned; }

PoolKey key_of(const BlockSource::Request& request) {
  return {reinterpret_cast<std::uintptr_t>(request.context), request.traits, request.bytes};
}

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

CUresult BlockSource::driver_allocate(const Request& request, std::uintptr_t* address) {
  CUresult result;
  if (request.traits == kDeviceTraits) {
    CUdeviceptr device = 0;
    result = real_.memory_allocate(&device, request.bytes);
    *address = device;
  } else {
    void* host = nullptr;
    result = request.traits & kPlainHostAllocation
                 ? real_.host_allocate_plain(&host, request.bytes)
                 : real_.host_allocate(&host, request.bytes, static_cast<unsigned>(request.traits));
    *address = reinterpret_cast<std::uintptr_t>(host);
  }
  if (result == kSuccess) calls_of(request).allocs.fetch_add(1, std::memory_order_relaxed);
  return result;
}

CUresult BlockSource::driver_free(Context* context, BlockKind kind, std::uintptr_t address) {
  Inside inside(*context);
  RelaxedCapture relaxed(real_);
  Entered entered(real_, context->handle());
  if (!entered) return kInvalidContext;
  (kind == BlockKind::device ? context->device->calls : pinned_calls).frees.fetch_add(1, std::memory_order_relaxed);
  const CUresult answer = kind == BlockKind::device ? real_.memory_free(address) : real_.host_free(pointer(address));
  frees_done.fetch_add(1);
  return answer;
}

void BlockSource::count_reserved(const Context* context, BlockKind kind, std::uint64_t bytes) {
  share_of({kind, context, 0}).proportion.note_there(bytes);
  const std::uint64_t now = reserved_by(context, kind).fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (kind == BlockKind::device) {
    reserved_on_devices.rise(bytes);
    return raise(context->device->reserved_peak_bytes, now);
  }
  const std::uint64_t of_rings = ring_bytes.load(std::memory_order_relaxed);
  raise(pinned_reserved_peak_bytes, now > of_rings ? now - of_rings : 0);
}

Block* BlockSource::adopt(const Request& request, std::uintptr_t address, std::uint32_t life) {
  count_reserved(request.context, kind_of(request.traits), request.bytes);
  Block* block = blocks_.make();
  block->kind = kind_of(request.traits);
  block->context = request.context;
  block->epoch = life;
  block->bytes = request.bytes;
  block->traits = request.traits;
  blocks_.put(block, address);
  return block;
}

Acquired<Block*, CUresult> BlockSource::acquire(const Request& request) {
  if (kind_of(request.traits) == BlockKind::pinned && request.bytes <= kSmallPinnedBytes) return acquire_piece(request);
  std::uintptr_t address = 0;
  const std::uint32_t life = request.context->epoch.load();
  const CUresult result = driver_allocate(request, &address);
  if (result != kSuccess) return {nullptr, result, false};
  return {adopt(request, address, life), kSuccess, true};
}

void BlockSource::release(Block* block) {
  if (!block->context_is_there()) return forget(block);
  if (Through gate(gate_); gate) return really_release(block);
  Locked hold(lock_);
  postponed_.push_back(block);
  any_postponed_.store(true, std::memory_order_relaxed);
}

void BlockSource::release_while_capturing(Block* block, bool unsettled) {
  block->unsettled |= unsettled;
  block->context_is_there() ? really_release(block) : forget(block);
}

void BlockSource::wait_while_capturing(Context& context) {
  const Inside inside(context);
  const RelaxedCapture relaxed(real_);
  const Entered entered(real_, context.handle());
  if (!entered || context.ending.load()) return;
  const std::uint64_t number = context.clock.last();
  CUdeviceptr memory = 0;
  if (real_.memory_allocate(&memory, 1) != kSuccess) return;
  context.device->calls.allocs.fetch_add(1, std::memory_order_relaxed);
  context.device->calls.frees.fetch_add(1, std::memory_order_relaxed);
  if (real_.memory_free(memory) == kSuccess) context.clock.synchronised(number);
}

void BlockSource::release_postponed_while_capturing(bool unsettled_too) {
  for (;;) {
    Block* block;
    {
      Locked hold(lock_);
      const auto found = std::find_if(postponed_.begin(), postponed_.end(),
                                      [&](const Block* waiting) { return unsettled_too || !waiting->unsettled; });
      if (found == postponed_.end()) return;
      block = *found;
      postponed_.erase(found);
      block->context->own_calls.fetch_add(1);
    }
    Context* context = block->context;
    release_while_capturing(block, false);
    context->own_calls.fetch_sub(1);
  }
}

void BlockSource::take_out_postponed(const Context* context, Vector<Block*>& out) {
  Locked hold(lock_);
  std::erase_if(postponed_, [&](Block* block) {
    if (block->context != context) return false;
    out.push_back(block);
    return true;
  });
}

void BlockSource::release_postponed() {
  if (!any_postponed_.load(std::memory_order_relaxed) || !gate_.open()) [[likely]]
    return;
  // One block is taken at a time: a context that ends meanwhile must find the rest. The call is counted in own_calls
  // before the block leaves the list, since a thread that ends a context waits for these calls.
  for (;;) {
    Through gate(gate_);
    if (!gate) return;
    Block* block;
    Context* context;
    {
      Locked hold(lock_);
      any_postponed_.store(!postponed_.empty(), std::memory_order_relaxed);
      if (postponed_.empty()) return;
      block = postponed_.back();
      postponed_.pop_back();
      context = block->context;
      context->own_calls.fetch_add(1);
    }
    release(block);
    context->own_calls.fetch_sub(1);
  }
}

void BlockSource::really_release(Block* block) {
  if (block->slab) return release_piece(block);
  if (block->range) return block->range->give(block);
  Context* context = block->context;
  const BlockKind kind = block->kind;
  const std::uintptr_t address = block->address.load(std::memory_order_relaxed);
  const std::uint64_t bytes = block->bytes;
  blocks_.forget(block);
  count_given_back(context, kind, bytes);
  if (driver_free(context, kind, address) != kSuccess) failed_frees.fetch_add(1, std::memory_order_relaxed);
}

void BlockSource::forget(Block* block) {
  if (any_postponed_.load(std::memory_order_relaxed)) {
    Locked hold(lock_);
    std::erase(postponed_, block);
  }
  if (!block->is_part()) count_given_back(block->context, block->kind, block->bytes);
  blocks_.forget(block);
}

Acquired<std::uintptr_t, CUresult> BlockSource::acquire_segment(const Request& request) {
  std::uintptr_t first = 0;
  const CUresult result = driver_allocate(request, &first);
  if (result != kSuccess) return {0, result, false};
  count_reserved(request.context, kind_of(request.traits), request.bytes);
  return {first, kSuccess, true};
}

void BlockSource::release_segment(const Request& segment, std::uintptr_t first) {
  forget_segment(segment);
  if (driver_free(segment.context, kind_of(segment.traits), first) != kSuccess)
    failed_frees.fetch_add(1, std::memory_order_relaxed);
}

void BlockSource::forget_segment(const Request& segment) {
  count_given_back(segment.context, kind_of(segment.traits), segment.bytes);
}

Settled BlockSource::settled(Context& own, Fence& fence) {
  while (!fence.empty()) {
    const ClockPoint& point = fence.back();
    if (point.context->alive.load(std::memory_order_relaxed)) {
      if (point.context == &own && !marks_own_context.load(std::memory_order_relaxed)) {
        if (!point.context->clock.known(point.number)) return Settled::no;
        fence.pop_back();
        continue;
      }
      // A thread that ends a context sets `ending` before it waits for calls inside. It notes that the context is gone
      // before it clears `ending`.
      Inside inside(*point.context);
      if (point.context->ending.load()) return Settled::no;
      if (!point.context->alive.load()) {
        fence.pop_back();
        continue;
      }
      const Settled answer = point.context->clock.settled(point.context->handle(), point.number, own.device->calls);
      if (answer != Settled::yes) return answer;
    }
    fence.pop_back();
  }
  return Settled::yes;
}

// --- Slabs: pinned blocks of one size, context and kind of allocation, in one driver allocation

Block* BlockSource::adopt_piece(const Request& request, const Slabs::Piece& piece) {
  Block* block = blocks_.make();
  block->kind = BlockKind::pinned;
  block->context = request.context;
  block->epoch = piece.slab->life;
  block->bytes = request.bytes;
  block->traits = request.traits;
  block->slab = piece.slab;
  blocks_.put(block, piece.address);
  return block;
}

Acquired<Block*, CUresult> BlockSource::acquire_piece(const Request& request) {
  const PoolKey key = key_of(request);
  {
    Locked hold(lock_);
    if (const auto piece = slabs_.take(key)) return {adopt_piece(request, *piece), kSuccess, true};
  }
  std::uintptr_t first = 0;
  const std::uint32_t life = request.context->epoch.load();
  const CUresult result = driver_allocate({request.context, request.traits, kSlabBytes}, &first);
  if (result != kSuccess) return {nullptr, result, false};
  count_reserved(request.context, BlockKind::pinned, kSlabBytes);
  Locked hold(lock_);
  const Slabs::Piece piece = slabs_.add(key, first, kSlabBytes, life);
  blocks_.ranges.insert(first, kSlabBytes, {RangeKind::slab, request.bytes, piece.slab});
  return {adopt_piece(request, piece), kSuccess, true};
}

void BlockSource::release_piece(Block* block) {
  Slab* const slab = block->slab;
  Context* const context = block->context;
  const bool again = !block->unsettled;
  const std::uintptr_t address = block->address.load(std::memory_order_relaxed);
  blocks_.forget(block);
  {
    Locked hold(lock_);
    // Gone meanwhile with its context, and forgotten with it.
    if (!context->alive.load() || context->epoch.load() != slab->life) return;
    if (!slabs_.give_back(slab, address, again)) return;
  }
  forget_slab(*slab);
  if (driver_free(context, BlockKind::pinned, slab->first) != kSuccess)
    failed_frees.fetch_add(1, std::memory_order_relaxed);
  Slabs::end(slab);
}

void BlockSource::forget_slab(const Slab& slab) {
  blocks_.ranges.erase_if(slab.first, [&](const RangeContent& of) { return of.owner == &slab; });
  count_given_back(nullptr, BlockKind::pinned, slab.bytes);
}

// Blocks of these slabs that the program still holds keep pointing to them.
void BlockSource::forget_slabs(const Context* context) {
  Locked hold(lock_);
  slabs_.forget(reinterpret_cast<std::uintptr_t>(context), [this](const Slab& slab) { forget_slab(slab); });
}

void BlockSource::after_fork_in_child() {
  new (&lock_) Lock;
  slabs_.forget_all();
  postponed_.clear();
  any_postponed_ = false;
  pinned_reserved_bytes = pinned_reserved_peak_bytes = ring_bytes = 0;
  pinned_share.after_fork_in_child();
  reserved_on_devices.reset();
  pinned_calls.reset();
}

}  // namespace cistern::cuda
