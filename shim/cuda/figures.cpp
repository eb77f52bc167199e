// Figures of CUDA memory for reports: per kind, leaks, fragmentation, transfers, and the memory that the driver itself
// takes. Derived when a snapshot is taken, from the pools' own records. Also the row of the kind.
#include "shim/cuda/fork.hpp"
#include "shim/cuda/library_side.hpp"

#include <algorithm>

#include "cistern/cistern.h"
#include "shim/cuda/device_memory.hpp"
#include "shim/cuda/state.hpp"
#include "shim/cuda/unknown.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/process.hpp"
#include "shim/process/standings.hpp"
#include "stats/format.hpp"
#include "stats/leak_rows.hpp"

namespace cistern::cuda {
namespace {

constexpr double kNanosecond = 1e-9;

String kind_name(Family family, int device) {
  String name = family_name(family);
  if (per_device(family)) name += ":" + decimal(device, 0);
  return name;
}

bool of_kind(const Block& block, Family family, int device) {
  if (block.kind == BlockKind::pinned) return family == Family::pinned;
  return family == Family::device && block.context->device->ordinal == device;
}

void add_driver_calls(KindFigures& figures, const DriverCalls& calls) {
  figures.driver_allocs += calls.allocs;
  figures.driver_frees += calls.frees;
  figures.driver_syncs += calls.syncs;
  figures.driver_queries += calls.queries;
}

ClassFigures& class_of_bytes(KindFigures& figures, std::uint64_t bytes) {
  const int size_class = report_class(bytes);
  const auto at = std::lower_bound(figures.classes.begin(), figures.classes.end(), size_class,
                                   [](const ClassFigures& of, int wanted) { return of.size_class < wanted; });
  if (at != figures.classes.end() && at->size_class == size_class) return *at;
  return *figures.classes.insert(at, ClassFigures{size_class, 0, 0, 0, 0, 0, 0});
}

void add_free(KindFigures& figures, FragmentationFigures& fragmentation, std::uint64_t bytes) {
  ++figures.pooled_blocks;
  figures.pooled_bytes += bytes;
  fragmentation.free_bytes += bytes;
  fragmentation.largest_free_bytes = std::max(fragmentation.largest_free_bytes, bytes);
  ClassFigures& of_size = class_of_bytes(figures, bytes);
  ++of_size.cached_blocks;
  of_size.cached_bytes += bytes;
}

// Memory between the live blocks of a segment is free.
void add_free_of_segments(CudaState& s, Family family, int device, KindFigures& figures,
                          FragmentationFigures& fragmentation) {
  if (!s.segments.any()) return;
  struct Part {
    std::uintptr_t first;
    std::uint64_t bytes;
  };
  Vector<Part> live, segments;
  s.blocks.table.for_each([&](Block& block) {
    if (block.in_segment && of_kind(block, family, device) && block.state.load() == BlockState::live)
      live.push_back({block.address.load(), block.bytes});
  });
  const BlockKind kind = family == Family::pinned ? BlockKind::pinned : BlockKind::device;
  s.segments.for_each([&](std::uintptr_t first, const Segment& segment) {
    const bool of_device = kind == BlockKind::pinned || segment.of.context->device->ordinal == device;
    if (segment.kind() == kind && of_device) segments.push_back({first, segment.of.bytes});
  });
  fragmentation.splits |= !segments.empty();
  std::sort(live.begin(), live.end(), [](const Part& a, const Part& b) { return a.first < b.first; });
  auto block = live.begin();
  for (const auto& [first, bytes] : segments) {
    std::uintptr_t at = first;
    for (; block != live.end() && block->first < first + bytes; ++block) {
      if (block->first > at) add_free(figures, fragmentation, block->first - at);
      at = std::max(at, block->first + block->bytes);
    }
    if (at < first + bytes) add_free(figures, fragmentation, first + bytes - at);
  }
}

// Live and cached chunks, and what the live ones waste, by class of the report. A range has its free extents instead of
// cached chunks.
void add_blocks(CudaState& s, Family family, int device, KindFigures& figures, FragmentationFigures& fragmentation) {
  s.blocks.table.for_each([&](Block& block) {
    if (!of_kind(block, family, device) || block.in_ring.load(std::memory_order_relaxed)) return;
    const std::optional<std::uint64_t> live = read_live(block, [&] { return std::uint64_t{block.requested}; });
    const int size_class = report_class(live.value_or(block.bytes));
    auto found = std::find_if(figures.classes.begin(), figures.classes.end(),
                              [&](const ClassFigures& c) { return c.size_class == size_class; });
    if (!live) {
      if (!block.is_former.load(std::memory_order_relaxed)) add_free(figures, fragmentation, block.bytes);
      return;
    }
    fragmentation.live_bytes += block.bytes;
    fragmentation.requested_bytes = fragmentation.requested_bytes.value_or(0) + *live;
    if (found == figures.classes.end()) return;
    found->live_bytes = found->live_bytes.value_or(0) + block.bytes;
    found->requested_bytes = found->requested_bytes.value_or(0) + *live;
  });
  if (family == Family::device)
    s.pools.ranges().for_each([&](DeviceRange& range) {
      if (range.context().device->ordinal != device) return;
      fragmentation.splits = true;
      range.pool().for_each_free([&](const ranges::Extent& free) { add_free(figures, fragmentation, free.bytes); });
    });
  add_free_of_segments(s, family, device, figures, fragmentation);
  fragmentation.reserved_bytes = fragmentation.live_bytes + fragmentation.free_bytes;
}

LiveBlocks live_blocks(const Tracked& record) {
  return {record.object, record.api, record.site, record.bytes, record.born_ns, record.born_ns};
}

// Adds to the row of the block's family, device and call site. `part` keeps rows apart besides: the standing, or
// Standing::count for blocks that went with their context.
LeakFigures& add_leak(LeakRows& rows, const Tracked& of, const LiveBlocks& live, std::uint64_t part) {
  constexpr auto kParts = static_cast<std::uint64_t>(Standing::count) + 1;
  const std::uint64_t apart = static_cast<std::uint64_t>(of.family) * kDevicesMax + of.device;
  return rows.add(live, apart * kParts + part, [&] { return kind_name(of.family, of.device); });
}

void add_standing_leak(LeakRows& rows, const Tracked& of, std::uintptr_t address) {
  const Standing standing = standing_of_target(address, of.born_ns);
  add_leak(rows, of, live_blocks(of), static_cast<std::uint64_t>(standing)).leak_class = class_of(standing);
}

bool used() {
  CudaState* s = state_if_used();
  if (!s) return false;
  bool any = false;
  s->account.for_each_kind([&](Family, int, KindCounters& counted) { any |= read(counted.allocations) != 0; });
  return any;
}

void add_kinds(Vector<KindFigures>& kinds, Vector<FragmentationFigures>& fragmentation) {
  CudaState* s = state_if_used();
  if (!s) return;
  s->account.for_each_kind([&](Family family, int device, KindCounters& counted) {
    const bool pooled = family == Family::device || family == Family::pinned;
    KindFigures figures = counted.figures(kind_name(family, device).c_str(), pooled);
    if (!figures.allocations && !figures.failed && !figures.live_blocks) return;
    if (family == Family::graph) figures.graph_memory = s->graph_memory.figures(device);
    if (pooled) {
      FragmentationFigures fragments{figures.name, 0, 0, 0, 0, 0};
      add_blocks(*s, family, device, figures, fragments);
      const Device* const of = family == Family::device ? s->contexts.device(device) : nullptr;
      fragments.live_peak_bytes = figures.peak_bytes;
      if (family == Family::pinned || of) {
        fragments.reserved_peak_bytes =
            std::max(fragments.reserved_bytes,
                     read(of ? of->reserved_peak_bytes : s->pools.source().pinned_reserved_peak_bytes));
        fragments.worst = counted.worst_moment({fragments.reserved_bytes, *fragments.reserved_peak_bytes});
      }
      fragmentation.push_back(fragments);
      if (family == Family::pinned) add_driver_calls(figures, s->pools.source().pinned_calls);
      if (of) add_driver_calls(figures, of->calls);
    }
    kinds.push_back(std::move(figures));
  });
}

void add_leaks(Vector<LeakFigures>& leaks) {
  CudaState* s = state_if_used();
  if (!s) return;
  struct Live {
    Tracked record;
    std::uintptr_t address;
  };
  Vector<Live> live;
  s->blocks.table.for_each([&](Block& block) {
    if (const auto record = read_live(block, [&] { return as_tracked(block); }))
      live.push_back({*record, block.address.load()});
  });
  s->account.for_each_tracked([&](const void* handle, Tracked& record) {
    if (!record.inherited) live.push_back({record, reinterpret_cast<std::uintptr_t>(handle)});
  });
  LeakRows rows(leaks);
  for (const Live& one : live) add_standing_leak(rows, one.record, one.address);
  for (const WentWithContext& went : s->account.went_with_context()) {
    LiveBlocks live = live_blocks(went.first);
    live.bytes = went.bytes;
    live.last_ns = went.last_ns;
    live.blocks = went.blocks;
    add_leak(rows, went.first, live, static_cast<std::uint64_t>(Standing::count)).leak_class =
        LeakClass::went_with_context;
  }
}

void add_objects(Snapshot& snapshot) {
  constexpr const char* kTypes[] = {"CUDA streams", "CUDA events", "CUDA modules", "CUDA libraries", "CUDA graphs"};
  CudaState* s = state_if_used();
  if (!s) return;
  for (int type = 0; type < static_cast<int>(ObjectType::count); ++type) {
    ObjectRows rows(kTypes[type]);
    s->objects.for_each([&](const void*, const ObjectRecord& record) {
      const bool there =
          !record.context || (record.context->alive.load() && record.context->epoch.load() == record.epoch);
      if (static_cast<int>(record.type) == type && !record.inherited && there) rows.add(record.site, record.api);
    });
    rows.add_to(snapshot, s->objects.created(static_cast<ObjectType>(type)));
  }
}

void add_staging(Snapshot& snapshot) {
  CudaState& s = state();
  s.contexts.for_each_ever(
      [&](Context& context) { snapshot.staging_bytes += context.ring.figures().chunks * staging::kChunkBytes; });
  s.staging.accounts().add_to(snapshot, "cuda");
  if (options().gather) s.gather.add_to(snapshot);
}

void add_devices(Snapshot& snapshot) {
  CudaState* s = state_if_used();
  if (!s) return;
  snapshot.escaped = read(s->account.escaped);
  s->contexts.for_each_device([&](const Device& device) {
    if (!device.sampled_at_ns.load() || !device.total_bytes.load()) return;
    // The bytes that this process took or gave back since then are known.
    const std::uint64_t own = taken_bytes(device);
    const std::uint64_t not_others = device.sampled_free_bytes.load() + device.sampled_own_bytes.load();
    snapshot.device_memory.push_back({device.ordinal, device.total_bytes.load(), not_others - std::min(own, not_others),
                                      own, static_cast<double>(device.sampled_at_ns.load()) * kNanosecond});
  });
}

// A row for each context: peaks of several are no peak of all.
void add_device_ranges(Snapshot& snapshot) {
  state().pools.ranges().for_each([&](DeviceRange& range) {
    const auto figures = range.pool().figures();
    snapshot.device_ranges.push_back({.device = range.context().device->ordinal,
                                      .address_bytes = range.address_bytes(),
                                      .mapped_bytes = figures.mapped_bytes,
                                      .mapped_peak_bytes = figures.mapped_peak,
                                      .used_peak_bytes = figures.used_peak,
                                      .waiting_bytes = range.pool().waiting_bytes(),
                                      .largest_free_bytes = figures.largest_free,
                                      .allocations = figures.allocations,
                                      .hits = figures.hits,
                                      .moved_pieces = figures.moved,
                                      .driver_calls = figures.driver_calls(),
                                      .lost_bytes = figures.lost_bytes});
  });
}

// Over all devices; the largest block that is kept.
template <BlockKind kind>
KindFigures total_figures(std::uint64_t* largest_kept_bytes) {
  KindFigures total{};
  Vector<KindFigures> kinds;
  Vector<FragmentationFigures> fragmentation;
  add_kinds(kinds, fragmentation);
  const bool device = kind == BlockKind::device;
  const auto wanted = [&](const String& name) { return device ? name.starts_with("device:") : name == "pinned"; };
  for (const KindFigures& figures : kinds) {
    if (!wanted(figures.name)) continue;
    for (auto member :
         {&KindFigures::allocations, &KindFigures::frees, &KindFigures::pool_hits, &KindFigures::pool_misses,
          &KindFigures::driver_allocs, &KindFigures::driver_frees, &KindFigures::live_blocks, &KindFigures::live_bytes,
          &KindFigures::pooled_blocks, &KindFigures::pooled_bytes, &KindFigures::failed})
      total.*member += figures.*member;
    if (!device) total.peak_bytes = figures.peak_bytes;
  }
  if (CudaState* const s = state_if_used(); s && device) total.peak_bytes = s->account.live_on_devices.peak();
  for (const FragmentationFigures& fragments : fragmentation)
    if (wanted(fragments.kind)) *largest_kept_bytes = std::max(*largest_kept_bytes, fragments.largest_free_bytes);
  return total;
}

std::uint64_t reserved_peak_on_devices() {
  CudaState* const s = state_if_used();
  return s ? s->pools.source().reserved_on_devices.peak() : 0;
}

template <BlockKind kind>
std::uint64_t trim(std::uint64_t keep_bytes, std::uint64_t unused_for_ns) {
  CudaState* s = state_if_used();
  if (!s) return 0;
  const std::uint64_t now = coarse_now_ns();
  const std::uint64_t of_rings = kind == BlockKind::pinned ? trim_rings(*s, unused_for_ns, now) : 0;
  BlockPool& pool = s->pools.of(kind);
  const std::uint64_t whole = pool.trim({.keep_bytes = keep_bytes, .unused_for_ns = unused_for_ns}, now);
  if (kind != BlockKind::device || keep_bytes) return of_rings + whole;
  return whole + (unused_for_ns ? s->pools.ranges().trim_unneeded() : s->pools.ranges().trim());
}

void add_to(Snapshot& snapshot) {
  add_objects(snapshot);
  if (!used()) return;
  add_unknown_functions(snapshot);
  add_kinds(snapshot.kinds, snapshot.fragmentation);
  add_leaks(snapshot.leaks);
  state().account.for_each_kind([&](Family family, int device, KindCounters& counted) {
    counted.add_sites(kind_name(family, device), snapshot);
  });
  state().transfers.add_to(snapshot, "cuda");
  state().waits.add_to(snapshot, "cuda");
  add_staging(snapshot);
  add_devices(snapshot);
  add_device_ranges(snapshot);
}

}  // namespace

DeviceUse use_of_device(int device) {
  CudaState* const s = state_if_used();
  const Device* const of = s ? s->contexts.device(device) : nullptr;
  if (!of) return {};
  const std::uint64_t of_pool = read(of->share.live_bytes) + read(of->share.waste_bytes),
                      reserved = read(of->reserved_bytes);
  return {read(of->share.live_bytes) + read(of->tracked_bytes), reserved - std::min(reserved, of_pool)};
}

namespace {

std::uint64_t live_bytes() {
  std::uint64_t bytes = 0;
  if (CudaState* s = state_if_used())
    s->account.for_each_kind([&](Family, int, KindCounters& counted) { bytes += read(counted.live_bytes); });
  return bytes;
}

// Others than memory are known by their handle alone.
bool is_handle(Family family) { return family == Family::array || family == Family::vmm || family == Family::host_vmm; }

void visit_live(VisitLive visit, void* context) {
  CudaState* const s = state_if_used();
  if (!s) return;
  s->blocks.table.for_each([&](Block& block) {
    const std::optional<Tracked> record = read_live(block, [&] { return as_tracked(block); });
    if (!record) return;
    const bool is_device = block.kind == BlockKind::device;
    visit(context, {is_device ? CISTERN_DEVICE : CISTERN_PINNED, is_device ? record->device : -1, block.address.load(),
                    record->bytes, record->api, record->site, record->born_ns});
  });
  s->account.for_each_tracked([&](const void* handle, const Tracked& record) {
    if (record.family != Family::managed || record.inherited) return;
    visit(context, {CISTERN_MANAGED, -1, reinterpret_cast<std::uintptr_t>(handle), record.bytes, record.api,
                    record.site, record.born_ns});
  });
}

void add_judged(JudgedMemory& memory) {
  CudaState* const s = state_if_used();
  if (!s) return;
  s->blocks.table.for_each([&](Block& block) {
    if (const auto bytes = read_live(block, [&] { return std::uint64_t{block.requested}; }))
      memory.add(block.address.load(), *bytes, block.kind == BlockKind::pinned);
    else if (block.kind == BlockKind::pinned)
      memory.add_unused(block.address.load(), block.bytes);
  });
  s->account.for_each_tracked([&](const void* handle, const Tracked& record) {
    if (record.inherited) return;
    if (!is_handle(record.family)) {
      const bool readable = record.family == Family::managed;
      memory.add(reinterpret_cast<std::uintptr_t>(handle), record.bytes, readable);
    } else if (record.references) {
      memory.add_handle(handle);
    }
  });
  s->objects.for_each([&](const void* handle, const ObjectRecord&) { memory.add_handed_out(handle); });
  s->contexts.for_each([&](Context& context) { memory.add_handed_out(context.handle()); });
}

constexpr KindPool kPools[] = {
    {CISTERN_DEVICE, total_figures<BlockKind::device>, trim<BlockKind::device>, reserved_peak_on_devices,
     &Options::device_pool_min},
    {CISTERN_PINNED, total_figures<BlockKind::pinned>, trim<BlockKind::pinned>, nullptr, &Options::pinned_pool_min},
};
constexpr const library::KindMemory* kMemory[] = {&device_memory, &pinned_memory, &managed_memory};

}  // namespace

extern constexpr Kind kind = {
    .name = "cuda",
    .pools = kPools,
    .memory = kMemory,
    .used = used,
    .add_to = add_to,
    .live_bytes = live_bytes,
    .fork = {before_fork, after_fork_in_parent, after_fork_in_child, after_fork_in_parent},
    .add_judged = add_judged,
    .visit_live = visit_live,
    .exit_begins = [] { before_call(Sent::exit); },
};

}  // namespace cistern::cuda
