// See device_ranges.hpp.
#include "shim/cuda/device_ranges.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "shim/cuda/next.hpp"
#include "shim/process/log.hpp"
#include "shim/process/process.hpp"
#include "stats/sink.hpp"

namespace cistern::cuda {
namespace {

// Holes between long-lived blocks cost addresses, not memory, so there are more addresses than memory. A driver that
// has fewer is asked for half of them, as long as all of the memory has one.
constexpr std::uint64_t kAddressesPerByte = 8;

CUmemAllocationProp properties_of(const Device& device, bool rdma_capable) {
  CUmemAllocationProp properties{};
  properties.type = kPinnedAllocation;
  properties.location = {kLocationDevice, device.ordinal};
  properties.rdma_capable = rdma_capable;
  return properties;
}

}  // namespace

DeviceRanges::DeviceRanges(const Functions& functions, CallGate& gate, Blocks& blocks, Contexts& contexts,
                           BlockSource& source, bool asked_for)
    : functions_(functions),
      gate_(gate),
      blocks_(blocks),
      contexts_(contexts),
      source_(source),
      asked_for_(asked_for) {}

void DeviceRanges::say(const Device& device, const Refusal& refusal) {
  StringSink line;
  line.print("device {}: {} failed with {}; CISTERN_DEVICE_POOL=ranges has whole allocations there", device.ordinal,
             refusal.function, static_cast<int>(refusal.answer));
  warn_later(line.text());
}

DeviceRange* DeviceRanges::of(Context& context) {
  if (DeviceRange* const range = context.range.load(std::memory_order_acquire)) [[likely]]
    return range;
  if (!asked_for() || context.has_no_range.load(std::memory_order_relaxed)) return nullptr;
  if (DeviceRange* const ended = take_ended(context)) return ended;
  Refusal refusal{nullptr, kSuccess};
  DeviceRange* const range = make(context, &refusal);
  if (range || !gate_.open() || context.has_no_range.exchange(true)) return range;
  if (refusal.function) say(*context.device, refusal);
  return nullptr;
}

// Memory is mapped once, since some drivers refuse only that [facts: WSL reports that it can serve GPUDirect RDMA, and
// fails when access is set].
DeviceRanges::Refusal DeviceRanges::try_out(Context& context, CUdeviceptr first, std::uint64_t granularity,
                                            bool rdma_capable) {
  PhysicalMemory memory(functions_, source_, context, granularity, rdma_capable);
  const auto piece = memory.create(granularity);
  if (!piece.ok) return {memory.refused_call(), piece.error};
  CUresult answer = memory.map(first, granularity, piece.chunk);
  if (answer == kSuccess) {
    answer = memory.allow_access(first, granularity);
    memory.unmap(first, granularity);
  }
  memory.destroy(piece.chunk);
  return {memory.refused_call(), answer};
}

// Its addresses are there, and the driver serves it.
DeviceRange* DeviceRanges::take_ended(Context& context) {
  for (DeviceRange* range = first_.load(std::memory_order_acquire); range; range = range->next) {
    if (!range->serve_next(context)) continue;
    DeviceRange* known = nullptr;
    if (context.range.compare_exchange_strong(known, range)) return range;
    range->end();
    return known;
  }
  return nullptr;
}

DeviceRange* DeviceRanges::make(Context& context, Refusal* refusal) {
  const Through gate(gate_);
  if (!gate) return nullptr;
  const RelaxedCapture relaxed(functions_);
  Device& device = *context.device;
  const auto refused = [&](const char* function, CUresult answer) -> DeviceRange* {
    if (answer != kOutOfMemory && !is_sticky(answer)) *refusal = {function, answer};
    return nullptr;
  };
  int has_ranges = 0, can_rdma = 0;
  constexpr int kVirtualMemory = 102, kRdmaWithVirtualMemory = 110;
  if (functions_.device_attribute(&has_ranges, kVirtualMemory, device.ordinal) != kSuccess || !has_ranges)
    return refused("cuDeviceGetAttribute", kNotSupported);
  if (functions_.device_attribute(&can_rdma, kRdmaWithVirtualMemory, device.ordinal) != kSuccess) can_rdma = 0;
  const CUmemAllocationProp properties = properties_of(device, can_rdma);
  std::size_t granularity = 0, total = 0;
  CUresult answer = functions_.memory_granularity(&granularity, &properties, kRecommendedGranularity);
  if (answer != kSuccess) return refused("cuMemGetAllocationGranularity", answer);
  answer = driver().cuDeviceTotalMem_v2(&total, device.ordinal);
  if (answer != kSuccess) return refused("cuDeviceTotalMem", answer);
  total = (total + granularity - 1) / granularity * granularity;
  CUdeviceptr first = 0;
  std::uint64_t bytes = total * kAddressesPerByte;
  do {
    answer = functions_.addresses_reserve(&first, bytes, granularity, 0, 0);
  } while (answer != kSuccess && (bytes /= 2) >= total);
  if (answer != kSuccess) return *refusal = {"cuMemAddressReserve", answer}, nullptr;
  Refusal tried = try_out(context, first, granularity, can_rdma);
  if (tried.answer != kSuccess && std::exchange(can_rdma, 0)) tried = try_out(context, first, granularity, false);
  DeviceRange* known = nullptr;
  if (tried.answer == kSuccess) {
    auto* const made = new (internal_allocate(sizeof(DeviceRange)))
        DeviceRange(functions_, blocks_, source_, context, {first, bytes, total}, granularity, can_rdma);
    const Options& chosen = options();
    made->set_limits({.bytes_max = chosen.device_pool_max,
                      .bytes_min = chosen.device_pool_min,
                      .interval_ns = chosen.trim_interval});
    if (context.range.compare_exchange_strong(known, made)) {
      made->next = first_.load();
      while (!first_.compare_exchange_weak(made->next, made)) {
      }
      return made;
    }
    made->~DeviceRange();
    internal_deallocate(made, sizeof(DeviceRange));
  }
  functions_.addresses_free(first, bytes);
  return known ? known : refused(tried.function, tried.answer);
}

DeviceRange* DeviceRanges::containing(std::uintptr_t address) const {
  for (DeviceRange* range = first_.load(std::memory_order_acquire); range; range = range->next)
    if (range->contains(address)) return range;
  return nullptr;
}

void DeviceRanges::note_refused(DeviceRange& range, CUresult answer) {
  if (answer == kOutOfMemory || is_sticky(answer) || !range.note_refused()) return;
  say(*range.context().device, {range.refused_call(), answer});
}

void DeviceRanges::note_export_refused(const Block& block, const char* api) {
  bool is_new = false;
  {
    Locked hold(whole_lock_);
    is_new = std::find(whole_sites_.begin(), whole_sites_.end(), block.site) == whole_sites_.end();
    if (is_new) whole_sites_.push_back(block.site);
  }
  any_whole_.store(true);
  if (!is_new) return;
  StringSink line;
  line.print(
      "{} refused memory of a range: {} gets whole allocations from now on. CISTERN_DEVICE_POOL=on has no such "
      "memory",
      api, block.site ? "its call site" : "the program");
  warn_line(line.text());
}

bool DeviceRanges::wants_whole(SiteId site) {
  Locked hold(whole_lock_);
  if (whole_sites_.size() > 1) return true;  // it shares memory from many places, as it seems
  return std::any_of(whole_sites_.begin(), whole_sites_.end(), [&](SiteId whole) { return !whole || whole == site; });
}

void DeviceRanges::device_appeared(Device& device) {
  if (!asked_for()) return;
  bool all = true;
  const auto open = [&](Device& memory, const Device& to) {
    int can = 0;
    if (driver().cuDeviceCanAccessPeer(&can, to.ordinal, memory.ordinal) != kSuccess || !can) return void(all = false);
    memory.peers.fetch_or(std::uint64_t{1} << to.ordinal);
  };
  contexts_.for_each_device([&](Device& other) {
    if (&other == &device || !other.is_known) return;
    open(other, device);
    open(device, other);
  });
  for_each([&](DeviceRange& range) {
    if (range.context().device != &device && range.context().alive.load() && range.peers_changed() != kSuccess)
      all = false;
  });
  if (all) return;
  asked_for_.store(false);
  StringSink line;
  line.print(
      "device {} cannot use memory of another device: CISTERN_DEVICE_POOL=ranges has whole allocations from "
      "now on",
      device.ordinal);
  warn_later(line.text());
}

DeviceRanges::Usage DeviceRanges::usage(const Device& device) const {
  Usage sum;
  for_each([&](DeviceRange& range) {
    if (range.context().device != &device) return;
    const auto figures = range.pool().figures();
    sum.mapped_bytes += figures.mapped_bytes;
    sum.live_bytes += figures.live_bytes;
    sum.waiting_bytes += range.pool().waiting_bytes();
    sum.reclaimable_bytes += range.pool().reclaimable_bytes();
    sum.largest_free_bytes = std::max(sum.largest_free_bytes, figures.largest_free);
  });
  return sum;
}

void DeviceRanges::settle() {
  for_each([](DeviceRange& range) { range.pool().settle(); });
}

std::uint64_t DeviceRanges::trim() {
  std::uint64_t bytes = 0;
  for_each([&](DeviceRange& range) { bytes += range.pool().trim(0, ranges::Asked::wait); });
  for_each([](DeviceRange& range) { range.pool().wait_for_returns(); });
  return bytes;
}

std::uint64_t DeviceRanges::trim_unneeded() {
  std::uint64_t bytes = 0;
  for_each([&](DeviceRange& range) { bytes += range.pool().trim(range.pool().take_recent_peak()); });
  return bytes;
}

bool DeviceRanges::any_waits() const {
  bool any = false;
  for_each([&](DeviceRange& range) { any |= range.pool().waiting_bytes() != 0; });
  return any;
}

std::uint64_t DeviceRanges::trim_while_capturing() {
  if (!any_waits()) return 0;
  Vector<Context*> contexts;
  contexts_.for_each([&](Context& context) { contexts.push_back(&context); });
  for (Context* const context : contexts) source_.wait_while_capturing(*context);
  return trim();
}

std::uint64_t DeviceRanges::trim_after_work() {
  const bool waits = any_waits();
  Vector<Context*> contexts;  // the lock of the contexts is not held when the driver is called
  {
    const Through gate(gate_);
    if (waits && gate) contexts_.for_each([&](Context& context) { contexts.push_back(&context); });
    for (Context* context : contexts) contexts_.wait_for_work(*context);
  }
  return trim();  // in any case: another thread may have waited for all work since the trim before
}

void DeviceRanges::before_fork() {
  whole_lock_.lock_for_fork();
  for_each([](DeviceRange& range) { range.before_fork(); });
}
void DeviceRanges::after_fork_in_parent() {
  for_each([](DeviceRange& range) { range.after_fork(); });
  whole_lock_.unlock_after_fork();
}
void DeviceRanges::after_fork_in_child() {
  after_fork_in_parent();
  first_.store(nullptr);
}

}  // namespace cistern::cuda
