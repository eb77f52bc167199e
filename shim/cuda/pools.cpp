// See pools.hpp.
#include "shim/cuda/pools.hpp"

#include <algorithm>

#include "shim/cuda/next.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/process.hpp"

namespace cistern::cuda {
namespace {

// Thread caches hold at most this part of what is used: a range counts it as used, and cannot join or move it.
constexpr std::uint64_t kThreadsPart = 128;

}  // namespace

Pools::Pools(const Functions& functions, CallGate& gate, Blocks& blocks, Contexts& contexts, Account& account,
             const Ways& ways)
    : gate_(gate),
      contexts_(contexts),
      account_(account),
      source_(functions, gate, blocks),
      device_(source_),
      pinned_(source_),
      ranges_(functions, gate, blocks, contexts, source_, ways.with_ranges),
      keep_device_memory_(options().device_pool != "off"),
      deferred_(ways.deferred) {
  const Options& chosen = options();
  source_.marks_own_context = deferred_;
  device_.set_limits(
      {.bytes_max = chosen.device_pool_max, .bytes_min = chosen.device_pool_min, .interval_ns = chosen.trim_interval});
  pinned_.set_limits(
      {.bytes_max = chosen.pinned_pool_max, .bytes_min = chosen.pinned_pool_min, .interval_ns = chosen.trim_interval});
  source_.pinned_share.proportion.set_limits(
      Proportion::limits(chosen.pinned_pool_percent, chosen.trim_interval, chosen.pinned_pool_min));
}

BlockSource::Fence Pools::fence_for(const Block* block, bool own_too) {
  BlockSource::Fence fence;
  Context* own = block->context;
  if (own_too) fence.push_back({own, own->clock.now()});
  const bool shared = block->kind == BlockKind::pinned || contexts_.share_memory();
  if (shared && contexts_.are_several())
    contexts_.for_each([&](Context& other) {
      if (&other != own) fence.push_back({&other, other.clock.now()});
    });
  return fence;
}

void Pools::give(Block* block, BlockSource::Fence&& fence, std::uint64_t now_ns) {
  if (block->range) return give_to_range(block, std::move(fence), now_ns);
  const PoolKey key = block->key();
  BlockPool& pool = of(block->kind);
  fence.empty() ? pool.give(key, block, now_ns) : pool.give_waiting(key, block, std::move(fence), now_ns);
}

template <class Give>
void Pools::to_range(Block* block, std::uint64_t now_ns, Give give) {
  DeviceRange& range = *block->range;
  const Inside inside(*block->context);
  if (!block->context_is_there()) return;  // it goes with its range
  if (!give(range)) return;
  if (gate_.open())
    range.keep_limits(now_ns);
  else
    limits_missed_.store(true, std::memory_order_relaxed);
}

void Pools::keep_limits_now() {
  if (!gate_.open()) return;
  bool waits = false;
  const std::uint64_t now_ns = coarse_now_ns();
  ranges_.for_each([&](DeviceRange& range) {
    range.pool().settle();
    range.keep_limits(now_ns);
    waits |= range.pool().waiting_bytes() != 0;
  });
  limits_missed_.store(waits);
}

void Pools::give_to_range(Block* block, BlockSource::Fence&& fence, std::uint64_t now_ns) {
  Context* const context = block->context;
  to_range(block, now_ns, [&](DeviceRange& range) {
    if (block->marked.load(std::memory_order_relaxed)) {
      fence.empty() ? range.retire(block) : range.retire(block, std::move(fence));
      return true;
    }
    const std::uint64_t threads_max = context->device->share.used_bytes() / kThreadsPart;
    if (fence.empty() && device_.give_to_thread(block->key(), block, now_ns, threads_max)) return false;
    if (fence.empty())
      range.give(block);
    else if (fence.size() == 1 && fence.front().context == context)
      range.give_behind(block, ranges::kContextOrder);
    else
      range.give_behind(block, std::move(fence));
    return true;
  });
}

void Pools::give_to_range(Block* block, ranges::Order order, std::uint64_t now_ns) {
  to_range(block, now_ns, [&](DeviceRange& range) {
    if (block->marked.load(std::memory_order_relaxed))
      range.retire(block, {{block->context, block->context->clock.now()}});
    else
      range.give_behind(block, order);
    return true;
  });
}

std::uint64_t Pools::reserved_bytes(const Sort& sort) const {
  if (sort.kind == BlockKind::device) return sort.context->device->reserved_bytes.load(std::memory_order_relaxed);
  const std::uint64_t all = source_.pinned_reserved_bytes.load(std::memory_order_relaxed);
  return all - std::min(all, source_.ring_bytes.load(std::memory_order_relaxed));
}

Proportion::Now Pools::usage(const Sort& sort, std::uint64_t now_ns) {
  const Share& share = source_.share_of(sort);
  const KindCounters& counted = account_.counters_of(sort.kind, sort.context);
  return {.reserved_bytes = reserved_bytes(sort),
          .live_bytes = share.used_bytes(),
          .waste_bytes = share.waste_bytes.load(std::memory_order_relaxed),
          .allocated_bytes = read(counted.allocated_bytes),
          .ns = now_ns};
}

bool Pools::keeps(const Block& freed, std::uint64_t now_ns) {
  if (freed.is_part()) return true;  // it cannot go alone
  Proportion& proportion = source_.share_of(freed.sort()).proportion;
  proportion.note_back(freed.bytes, freed.recycled);
  if (proportion.asked_again(freed.bytes)) return true;
  Proportion::Now now = usage(freed.sort(), now_ns);
  const std::uint64_t rounded = as_driver_rounds(freed.requested);
  now.live_bytes -= std::min(now.live_bytes, rounded);
  now.waste_bytes -= std::min(now.waste_bytes, freed.bytes - rounded);
  return proportion.keeps(freed.bytes, now);
}

// Any key of the same share gives blocks up: of a stream, of another context of the device, with other flags.
void Pools::give_up_excess(const Sort& sort, std::uint64_t now_ns) {
  Share& share = source_.share_of(sort);
  const std::uint64_t bytes = share.proportion.begin(usage(sort, now_ns));
  if (!bytes) return;
  of(sort.kind).give_up_those(
      [&](const PoolKey& key) {
        return &source_.share_of({sort.kind, reinterpret_cast<const Context*>(key.group), key.traits}) == &share;
      },
      bytes);
  share.proportion.end(bytes);
}

void Pools::settle() {
  if (!gate_.open()) return;
  Vector<std::uintptr_t> groups;  // the lock of the contexts is not held when the driver is called
  contexts_.for_each([&](Context& context) { groups.push_back(reinterpret_cast<std::uintptr_t>(&context)); });
  for (const std::uintptr_t group : groups) {
    device_.settle(group);
    pinned_.settle(group);
  }
  ranges_.settle();
}

void Pools::give_cached_to_ranges() {
  if (!ranges_.any()) return;
  device_.take_from_threads([](const Block* block) { return block->range != nullptr; },
                            [this](Block* block) { source_.release(block); });
}

std::uint64_t Pools::trim() {
  const Trim all{.keep_bytes = 0, .unused_for_ns = 0};
  const std::uint64_t now_ns = coarse_now_ns();
  const std::uint64_t bytes = device_.trim(all, now_ns) + pinned_.trim(all, now_ns);
  return bytes + ranges_.trim() + trim_segments();
}

std::uint64_t Pools::trim_while_capturing() {
  if (!driver().cuThreadExchangeStreamCaptureMode) return 0;
  const auto release = [&](Block* block, bool unsettled) { source_.release_while_capturing(block, unsettled); };
  const std::uint64_t now_ns = coarse_now_ns(), freed = source_.frees_done.load();
  std::uint64_t bytes = 0;
  for (const bool settled_only : {true, false}) {
    const Trim all{.keep_bytes = 0, .unused_for_ns = 0, .settled_only = settled_only};
    source_.release_postponed_while_capturing(!settled_only);
    bytes = device_.trim(all, now_ns, release) + pinned_.trim(all, now_ns, release) + ranges_.trim();
    bytes += trim_segments(settled_only ? Unsettled::stays : Unsettled::too);
    if (bytes || source_.frees_done.load() != freed) return bytes;
  }
  return ranges_.trim_while_capturing();
}

void Pools::before_fork() {
  ranges_.before_fork();
  device_.before_fork();
  pinned_.before_fork();
  source_.before_fork();
}

void Pools::after_fork_in_parent() {
  source_.after_fork();
  pinned_.after_fork_in_parent();
  device_.after_fork_in_parent();
  ranges_.after_fork_in_parent();
}

void Pools::after_fork_in_child() {
  pinned_.after_fork_in_child();
  device_.after_fork_in_child();
  source_.after_fork();
  source_.after_fork_in_child();
  ranges_.after_fork_in_child();
}

}  // namespace cistern::cuda
