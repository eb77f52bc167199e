// See device_range.hpp.
#include "backends/cuda/device_range.hpp"

#include <bit>

namespace cistern::cuda {

Acquired<PhysicalMemory::Handle, CUresult> PhysicalMemory::create(std::uint64_t bytes) {
  if (!limit_allows(*context().device, bytes)) return {{}, kOutOfMemory, false};
  CUmemAllocationProp properties{};
  properties.type = kPinnedAllocation;
  properties.location = {kLocationDevice, context().device->ordinal};
  properties.rdma_capable = rdma_capable_;
  const RelaxedCapture relaxed(real_);
  CUmemGenericAllocationHandle memory = 0;
  const CUresult answer = real_.memory_create(&memory, bytes, &properties, 0);
  if (answer != kSuccess) return refused_call_ = "cuMemCreate", Acquired<Handle, CUresult>{{}, answer, false};
  context().device->calls.allocs.fetch_add(1, std::memory_order_relaxed);
  blocks_.count_mapped(context(), bytes);
  return {{memory, bytes}, kSuccess, true};
}

void PhysicalMemory::destroy(const Handle& handle) {
  const RelaxedCapture relaxed(real_);
  context().device->calls.frees.fetch_add(1, std::memory_order_relaxed);
  blocks_.count_unmapped(context(), handle.bytes);
  if (real_.memory_release(handle.memory) != kSuccess) blocks_.failed_frees.fetch_add(1, std::memory_order_relaxed);
  blocks_.frees_done.fetch_add(1);
}

CUresult PhysicalMemory::map(std::uint64_t first, std::uint64_t bytes, const Handle& handle) {
  const RelaxedCapture relaxed(real_);
  const CUresult answer = real_.memory_map(first, bytes, 0, handle.memory, 0);
  if (answer != kSuccess) refused_call_ = "cuMemMap";
  return answer;
}

CUresult PhysicalMemory::allow_access(std::uint64_t first, std::uint64_t bytes) {
  CUmemAccessDesc who[65] = {{{kLocationDevice, context().device->ordinal}, kReadAndWrite}};
  std::size_t count = 1;
  for (std::uint64_t left = context().device->peers.load(); left; left &= left - 1)
    who[count++] = {{kLocationDevice, std::countr_zero(left)}, kReadAndWrite};
  const RelaxedCapture relaxed(real_);
  const CUresult answer = real_.memory_access(first, bytes, who, count);
  if (answer != kSuccess) refused_call_ = "cuMemSetAccess";
  // A call that failed may have changed something. The program uses the memory on the context's own device.
  if (answer != kSuccess && count > 1) real_.memory_access(first, bytes, who, 1);
  return answer;
}

CUresult PhysicalMemory::unmap(std::uint64_t first, std::uint64_t bytes) {
  const RelaxedCapture relaxed(real_);
  return real_.memory_unmap(first, bytes);
}

DeviceRange::DeviceRange(const Functions& real, Blocks& records, BlockSource& blocks, Context& context,
                         const Addresses& addresses, std::uint64_t granularity, bool rdma_capable)
    : records_(records),
      addresses_(addresses),
      memory_(real, blocks, context, granularity, rdma_capable),
      pool_(memory_, {.first = addresses.first, .bytes = addresses.bytes, .memory_bytes = addresses.memory_bytes}) {}

DeviceRange::Given DeviceRange::acquire(std::uint64_t bytes, ranges::Order order) {
  const std::uint64_t peers = context().device->peers.load();
  const auto answer = pool_.allocate(bytes, order);
  if (!answer.ok) return {nullptr, answer.error, false};
  if (!answer.hit && refusals_.load(std::memory_order_relaxed)) refusals_.store(0);
  // Memory that was mapped meanwhile may not be open to a device that has appeared since.
  if (!answer.hit && context().device->peers.load() != peers) pool_.allow_access_again();
  Context& context = this->context();
  const std::uint32_t epoch = context.epoch.load(std::memory_order_relaxed);
  Block* block = records_.claim(answer.first, bytes, &context, epoch);
  if (block) {
    block->is_former.store(false, std::memory_order_relaxed);
    return {block, kSuccess, answer.hit};
  }
  block = records_.make();
  block->kind = BlockKind::device;
  block->context = &context;
  block->epoch = epoch;
  block->bytes = bytes;
  block->traits = kDeviceTraits;
  block->range = this;
  records_.put(block, answer.first);
  return {block, kSuccess, answer.hit};
}

void DeviceRange::give(Block* block) { pool_.deallocate(becomes_former(block), ranges::kAnyOrder, {}, false); }

void DeviceRange::give_behind(Block* block, ranges::Order order) {
  BlockSource::Fence fence{{&context(), 0}};
  const Locked hold(order_lock_);
  fence.front().number = context().clock.now();
  pool_.deallocate(becomes_former(block), order, std::move(fence), true);
}

void DeviceRange::give_behind(Block* block, BlockSource::Fence&& fence) {
  pool_.deallocate(becomes_former(block), ranges::kNoOrder, std::move(fence), true);
}

void DeviceRange::retire(Block* block) { pool_.retire(becomes_former(block)); }

void DeviceRange::retire(Block* block, BlockSource::Fence&& fence) {
  pool_.retire(becomes_former(block), std::move(fence));
}

void DeviceRange::keep_limits(std::uint64_t now_ns) {
  interval_.trim(*this, now_ns);
  const Device& device = *context().device;
  const std::uint64_t reserved = device.reserved_bytes.load(std::memory_order_relaxed),
                      used = device.share.used_bytes();
  if (reserved <= used || reserved - used <= bytes_max_) [[likely]]
    return;
  pool_.trim(pool_.figures().live_bytes + bytes_max_);
}

void DeviceRange::trim(const Trim& what, std::uint64_t) { pool_.trim(pool_.take_recent_peak() + what.keep_bytes); }

void DeviceRange::end() {
  pool_.end();
  refusals_ = 0;
  has_ended_ = true;
}

bool DeviceRange::serve_next(Context& context) {
  if (this->context().device != context.device || !has_ended_.exchange(false)) return false;
  memory_.serve(context);
  return true;
}

}  // namespace cistern::cuda
