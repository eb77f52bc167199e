// Free memory of a device: the driver's own figure, and the figure that it would give without the memory that the pool
// keeps. That excludes memory which cannot go back immediately: commands may still use it, or live blocks waste it in
// their chunks. A driver takes memory in units that it does not tell (512 bytes, or pages of up to 2 MiB that small
// blocks may share). So the first allocations are measured; then the pages that only cached blocks lie in are what
// would come free.
#include <algorithm>

#include "shim/cuda/state.hpp"

namespace cistern::cuda {
namespace {

constexpr std::uint64_t kGranuleMin = 512, kGranuleMax = std::uint64_t{2} << 20;
constexpr int kMeasurementsMax = 8;

constexpr std::uint64_t rounded(std::uint64_t bytes, std::uint64_t granule) {
  return (bytes + granule - 1) / granule * granule;
}

// The smallest unit in which `bytes` take so much; 0: none is known.
std::uint64_t granule_of(std::uint64_t bytes, std::uint64_t taken) {
  for (std::uint64_t granule = kGranuleMin; granule <= kGranuleMax; granule *= 2)
    if (rounded(bytes, granule) == taken) return granule;
  return 0;
}

std::uint64_t driver_calls(const Device& device) { return device.calls.allocs.load() + device.calls.frees.load(); }

struct Pages {
  std::uint64_t first, end;
};

std::uint64_t count_pages(Vector<Pages>& ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const Pages& a, const Pages& b) { return a.first < b.first; });
  std::uint64_t count = 0, seen = 0;
  for (const Pages& range : ranges) {
    const std::uint64_t first = std::max(range.first, seen);
    if (first < range.end) count += range.end - first;
    seen = std::max(seen, range.end);
  }
  return count;
}

template <class Visit>
void for_each_waiting(CudaState& s, const Device& device, Visit visit) {
  const auto of_device = [&](const Block* block) {
    if (block->kind == BlockKind::device && block->context->device == &device) visit(*block);
  };
  s.pools.device().for_each_waiting(of_device);
  s.pools.source().for_each_unsettled_postponed(of_device);
}

// Blocks come and go meanwhile: the answer is of about now, as the driver's own.
std::uint64_t kept_in_pages(CudaState& s, const Device& device, std::uint64_t granule) {
  Vector<Pages> held, used;
  const auto pages = [granule](const Block& block) {
    const std::uintptr_t address = block.address.load();
    return Pages{address / granule, (address + block.bytes + granule - 1) / granule};
  };
  s.blocks.table.for_each([&](Block& block) {
    if (block.kind != BlockKind::device || block.state.load() == BlockState::gone || !block.context_is_there()) return;
    if (block.in_range_or_segment()) return;
    if (block.context->device != &device) return;
    held.push_back(pages(block));
    if (block.state.load() == BlockState::live) used.push_back(held.back());
  });
  for_each_waiting(s, device, [&](const Block& block) { used.push_back(pages(block)); });
  const std::uint64_t all = count_pages(held), not_to_be_had = count_pages(used);
  return all > not_to_be_had ? (all - not_to_be_had) * granule : 0;
}

}  // namespace

// A piece of a range is used as a whole as long as any block lies there.
std::uint64_t used_bytes(CudaState& s, const Device& device) {
  const DeviceRanges::Usage in_ranges = s.pools.ranges().usage(device);
  std::uint64_t bytes = device.share.live_bytes.load(std::memory_order_relaxed) +
                        device.share.waste_bytes.load(std::memory_order_relaxed);
  bytes -= std::min(bytes, device.share.in_range_bytes.load(std::memory_order_relaxed));
  for_each_waiting(s, device, [&](const Block& block) { bytes += block.bytes; });
  const Segments::Usage in_segments = s.segments.usage(device);
  bytes += in_segments.bytes - std::min(in_segments.bytes, in_segments.reclaimable_bytes);
  bytes -= std::min(bytes, in_segments.live_bytes);
  return bytes + in_ranges.mapped_bytes - std::min(in_ranges.mapped_bytes, in_ranges.reclaimable_bytes);
}

std::uint64_t kept_bytes(CudaState& s, const Device& device) {
  const std::uint64_t granule = device.granule.load(std::memory_order_relaxed);
  const std::uint64_t reserved = device.reserved_bytes.load(std::memory_order_relaxed);
  if (granule != kGranuleMin) {
    const DeviceRanges::Usage in_ranges = s.pools.ranges().usage(device);
    const Segments::Usage in_segments = s.segments.usage(device);
    const bool any_whole = reserved > in_ranges.mapped_bytes + in_segments.bytes;
    return in_ranges.reclaimable_bytes + in_segments.reclaimable_bytes +
           (any_whole ? kept_in_pages(s, device, granule) : 0);
  }
  const std::uint64_t used = used_bytes(s, device);
  return reserved > used ? reserved - used : 0;
}

GranuleMeasurement::GranuleMeasurement(CudaState& s, Device& device, std::uint64_t bytes)
    : s_(s), device_(device), bytes_(bytes) {
  if (device.granule_measurements.load(std::memory_order_relaxed) >= kMeasurementsMax) return;
  if (bytes % kGranuleMax == 0 || !s.gate.open()) return;  // it would be the same in any unit
  calls_ = driver_calls(device);
  measures_ = ask(&free_before_);
}

bool GranuleMeasurement::ask(std::size_t* free_bytes) {
  std::size_t total_bytes = 0;
  device_.calls.queries.fetch_add(1, std::memory_order_relaxed);
  return driver().cuMemGetInfo_v2(free_bytes, &total_bytes) == kSuccess;
}

// A measurement is worth nothing when another allocation came in between. A unit that one more allocation confirms is
// believed.
void GranuleMeasurement::allocated() {
  std::size_t free_after = 0;
  if (!measures_ || !s_.gate.open() || !ask(&free_after)) return;
  device_.granule_measurements.fetch_add(1, std::memory_order_relaxed);
  if (driver_calls(device_) != calls_ + 1 || free_after >= free_before_) return;
  const std::uint64_t taken = free_before_ - free_after;
  const std::uint64_t measured = granule_of(bytes_, taken), known = device_.granule.load(std::memory_order_relaxed);
  if (!measured) return;
  if (rounded(bytes_, known) != taken) return device_.granule.store(measured, std::memory_order_relaxed);
  if (bytes_ % (known * 2)) device_.granule_measurements.store(kMeasurementsMax, std::memory_order_relaxed);
}

namespace {

// The driver's answer is a moment's: other processes take memory, too.
bool take_sample(Device& device) {
  std::size_t free_bytes = 0, total_bytes = 0;
  device.calls.queries.fetch_add(1, std::memory_order_relaxed);
  if (driver().cuMemGetInfo_v2(&free_bytes, &total_bytes) != kSuccess) return false;
  device.total_bytes.store(total_bytes, std::memory_order_relaxed);
  device.sampled_free_bytes.store(free_bytes, std::memory_order_relaxed);
  device.sampled_own_bytes.store(taken_bytes(device));
  return true;
}

}  // namespace

// Half of what was free is taken to be there still.
bool room_for(Device& device, std::uint64_t bytes) {
  if (!limit_allows(device, bytes)) return false;
  const std::uint64_t free = device.sampled_free_bytes.load() + device.sampled_own_bytes.load();
  const std::uint64_t taken = taken_bytes(device);
  if (free > taken && bytes <= (free - taken) / 2) return true;
  if (!state().gate.open() || !take_sample(device)) return true;
  return bytes <= device.sampled_free_bytes.load();
}

void sample_device_memory(CudaState& s, Device& device) {
  constexpr std::uint64_t kEvery = 1'000'000'000;
  const std::uint64_t now = coarse_nanoseconds_since_start() + 1;
  std::uint64_t last = device.sampled_at_ns.load(std::memory_order_relaxed);
  if ((last && now - last < kEvery) || !s.gate.open()) return;
  if (!device.sampled_at_ns.compare_exchange_strong(last, now)) return;
  take_sample(device);
}

}  // namespace cistern::cuda
