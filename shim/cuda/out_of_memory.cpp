// When memory ran out for good: one joint account of all kinds. The reader sees which kind holds it, and what would
// have been enough.
#include "shim/process/out_of_memory.hpp"

#include "shim/cuda/state.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/log.hpp"
#include "shim/process/process.hpp"
#include "shim/process/uncounted.hpp"
#include "stats/format.hpp"

namespace cistern::cuda {

extern const Kind kind;

namespace {

// `device`: null for pinned memory.
Holdings holdings(CudaState& s, const Device* device) {
  Holdings holdings;
  const auto add = [&](const Tracked& record) {
    const bool on_device = record.family == Family::device || takes_device_memory(record.family);
    const bool wanted = device ? on_device && record.device == device->ordinal : record.family == Family::pinned;
    if (wanted && !record.inherited) holdings.add(record.site, record.bytes);
  };
  s.blocks.table.for_each([&](Block& block) {
    if (const auto record = read_live(block, [&] { return as_tracked(block); })) add(*record);
  });
  s.account.for_each_tracked([&](const void*, Tracked& record) { add(record); });
  return holdings;
}

std::uint64_t live(CudaState& s, Family family, int device = 0) {
  const KindCounters* const counted = s.account.counters_if_used(family, device);
  return counted ? read(counted->live_bytes) : 0;
}

// Free, of the device of the current context: the driver's word, which may not be asked for during a capture.
bool ask_free(CudaState& s, Device& device, std::size_t* free_bytes, std::size_t* total_bytes) {
  const Context* const context = s.contexts.current();
  if (!context || context->device != &device || !s.gate.open()) return false;
  device.calls.queries.fetch_add(1, std::memory_order_relaxed);
  return driver().cuMemGetInfo_v2(free_bytes, total_bytes) == kSuccess;
}

// Prints whether the driver or the limit refused, and how much was missing. The pool has given back what it could.
// Returns the bytes that neither of them would refuse, as far as known.
std::uint64_t print_refusal(Sink& line, CudaState& s, Device& device, std::uint64_t bytes) {
  const std::uint64_t limit = limit_of(device), taken = taken_bytes(device);
  std::size_t free_bytes = 0, total_bytes = 0;
  const bool known = ask_free(s, device, &free_bytes, &total_bytes);
  if (known) line.print("; {} free of {}", human_bytes(free_bytes), human_bytes(total_bytes));
  if (limit && taken + bytes > limit) {
    line.print("; refused by CISTERN_DEVICE_LIMIT={}: it is {} short", human_bytes(limit),
               human_bytes(taken + bytes - limit));
  } else if (known && bytes > free_bytes) {
    line.print("; it is {} short", human_bytes(bytes - free_bytes));
  } else if (known) {
    line.write("; the free memory is fragmented, or the driver holds it back");
    return 0;
  }
  const std::uint64_t left = limit ? limit - std::min(limit, taken) : UINT64_MAX;
  return known ? std::min<std::uint64_t>(left, free_bytes) : 0;
}

// A block that fits beside the live ones of a range would have succeeded, and one of as many whole pieces as the device
// has `free_bytes` for.
void print_ranges(Sink& line, CudaState& s, const Device& device, std::uint64_t free_bytes) {
  constexpr std::uint64_t kPieceBytes = std::uint64_t{2} << 20;
  const DeviceRanges::Usage ranges = s.pools.ranges().usage(device);
  if (!ranges.mapped_bytes) return;
  // Moments of several counters: none of the differences may be below 0.
  const std::uint64_t used = ranges.live_bytes + ranges.waiting_bytes;
  line.print("; ranges: {} mapped, {} of it free beside live blocks", human_bytes(ranges.mapped_bytes),
             human_bytes(ranges.mapped_bytes - std::min(ranges.mapped_bytes, used)));
  if (ranges.waiting_bytes && s.captures.any())
    line.print(", {} freed: the work that may use it cannot be waited for while a stream captures",
               human_bytes(ranges.waiting_bytes));
  line.print("; {} would succeed",
             human_bytes(std::max(ranges.largest_free_bytes, free_bytes / kPieceBytes * kPieceBytes)));
}

}  // namespace

void report_out_of_memory(CudaState& s, const char* api, Family family, int ordinal, std::uint64_t bytes) {
  if (phase() != Phase::running) return;
  Uncounted uncounted;
  const bool on_device = family != Family::pinned;
  Device* const device = on_device ? s.contexts.device(ordinal) : nullptr;
  StringSink line;
  line.print("{} of {}: out of memory", api, human_bytes(bytes));
  if (on_device) {
    line.print("; device {}: {} live", ordinal, human_bytes(live(s, Family::device, ordinal)));
    if (const std::uint64_t async = live(s, Family::async, ordinal))
      line.print(", {} stream-ordered", human_bytes(async));
    if (const std::uint64_t graph = live(s, Family::graph, ordinal)) line.print(", {} for graphs", human_bytes(graph));
    if (const std::uint64_t vmm = live(s, Family::vmm, ordinal)) line.print(", {} mapped", human_bytes(vmm));
  }
  if (device) print_ranges(line, s, *device, print_refusal(line, s, *device, bytes));
  line.print("; pinned: {} live", human_bytes(live(s, Family::pinned)));
  if (const std::uint64_t managed = live(s, Family::managed)) line.print("; managed: {}", human_bytes(managed));
  print_other_kinds(line, kind);
  const PoolUsage usage = on_device ? s.pools.device().usage() : s.pools.pinned().usage();
  if (usage.blocks)
    line.print("; retained: {}, largest block {}", human_bytes(usage.bytes), human_bytes(usage.largest_bytes));
  holdings(s, device).print(line);
  print_this_call(line, site_of_call(s, api));
  StringSink alike;
  alike.print("{}: out of {} memory", api, family_name(family));
  warn_line(line.text(), alike.text());
}

}  // namespace cistern::cuda
