// What reports say of OpenCL memory and objects. Also the row of the kind.
#include <algorithm>

#include "cistern/cistern.h"
#include "pool/size_class.hpp"
#include "shim/opencl/fork.hpp"
#include "shim/opencl/library_side.hpp"
#include "shim/opencl/state.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/standings.hpp"
#include "stats/leak_rows.hpp"

namespace cistern::opencl {
namespace {

bool used() {
  OpenclState* s = state_if_used();
  return s && read(s->counters.allocations) != 0;
}

KindFigures figures() {
  OpenclState& s = state();
  KindFigures figures = s.counters.figures("opencl", true);
  figures.driver_allocs += s.calls.allocs;
  figures.driver_frees += s.calls.frees;
  figures.driver_queries += s.calls.queries;
  const PoolUsage usage = s.pool.usage();
  figures.pooled_blocks = usage.blocks;
  figures.pooled_bytes = usage.bytes;
  s.pool.for_each([&](const PoolKey& key) {
    for (ClassFigures& c : figures.classes)
      if (c.size_class == report_class(key.bytes)) ++c.cached_blocks, c.cached_bytes += key.bytes;
  });
  return figures;
}

struct LiveMemory {
  const void* handle;
  MemoryRecord record;
};

// The released ancestor whose memory a sub-buffer or image keeps alive: its bytes, else 0.
std::uint64_t kept_parent_bytes(OpenclState& s, const void* parent) {
  while (parent) {
    MemoryState state = MemoryState::dead;
    std::uint64_t bytes = 0;
    const void* grandparent = nullptr;
    s.memory.with(parent, [&](MemoryRecord* record) {
      if (record) state = record->state, bytes = record->bytes, grandparent = record->parent;
    });
    if (state != MemoryState::orphan) return 0;
    if (!grandparent) return bytes;
    parent = grandparent;
  }
  return 0;
}

void add_leaks(Vector<LeakFigures>& leaks) {
  OpenclState* s = state_if_used();
  if (!s) return;
  Vector<LiveMemory> live;
  s->memory.for_each([&](const void* handle, MemoryRecord& record) {
    if (record.state == MemoryState::live && !record.inherited) live.push_back({handle, record});
  });
  LeakRows rows(leaks);  // blocks that keep a released parent are apart from the others
  // One parent's bytes are named once, however many sub-buffers keep it.
  Map<const void*, bool> parents_named;
  for (const LiveMemory& block : live) {
    const MemoryRecord& record = block.record;
    std::uint64_t kept = record.parent ? kept_parent_bytes(*s, record.parent) : 0;
    if (kept && !parents_named.emplace(record.parent, true).second) kept = 0;
    const LiveBlocks one{kind_name(record.kind), record.api,     record.site,
                         record.bytes + kept,    record.born_ns, record.born_ns};
    const Standing standing = standing_of_target(block.handle, record.born_ns);
    const std::uint64_t apart = static_cast<std::uint64_t>(standing) * 2 + (kept != 0);
    LeakFigures& row = rows.add(one, apart, [] { return "opencl"; });
    row.leak_class = class_of(standing);
    References& references = row.references ? *row.references : row.references.emplace();
    ++references.created;
    references.retained += record.retains;
    references.released += record.releases;
    if (kept) row.kept_parent_bytes = row.kept_parent_bytes.value_or(0) + kept;
  }
}

void add_objects(Snapshot& snapshot) {
  OpenclState* s = state_if_used();
  if (!s) return;
  const auto count_alive = [](auto& table, auto wanted) {
    std::uint64_t alive = 0;
    table.for_each([&](const void*, auto& record) { alive += !record.inherited && wanted(record); });
    return alive;
  };
  const auto referenced = [](const auto& record) { return record.references != 0; };
  Vector<ObjectFigures>& objects = snapshot.objects;
  objects.push_back({"contexts", read(s->contexts_created), count_alive(s->contexts, referenced)});
  objects.push_back({"queues", read(s->queues_created), count_alive(s->queues, referenced)});
  objects.push_back({"kernels", read(s->kernels_created), count_alive(s->kernels, referenced)});
  constexpr const char* kNames[] = {"programs", "events", "samplers"};
  for (int type = 0; type < static_cast<int>(CountedType::count); ++type) {
    ObjectRows rows(kNames[type]);
    s->counted.for_each([&](const void*, const Counted& object) {
      if (static_cast<int>(object.type) == type && !object.inherited) rows.add(object.site, nullptr);
    });
    rows.add_to(snapshot, read(s->counted_created[type]));
  }
}

// What each context has now. One that the program gave up may still have memory.
struct ContextHolds {
  const DeviceGroup* group = nullptr;
  bool is_alive = false;
  ContextMemory memory{};
};
using Holds = Map<const void*, ContextHolds>;

Holds holds_of_contexts(OpenclState& s) {
  Holds holds;
  s.contexts.for_each([&](const void* context, const ContextRecord& record) {
    if (!record.inherited) holds[context] = {record.group, record.references != 0, {record.number, 0, 0, 0, 0}};
  });
  const auto add_to = [&](const void* context, std::uint64_t ContextMemory::*blocks,
                          std::uint64_t ContextMemory::*bytes, bool counts, std::uint64_t more) {
    const auto found = holds.find(context);
    if (found == holds.end()) return;
    found->second.memory.*blocks += counts;
    found->second.memory.*bytes += more;
  };
  s.memory.for_each([&](const void*, const MemoryRecord& record) {
    const bool is_live = record.state == MemoryState::live;
    if (!record.inherited && (is_live || record.state == MemoryState::orphan))
      add_to(record.context, &ContextMemory::live_blocks, &ContextMemory::live_bytes, is_live, record.bytes);
  });
  s.pool.for_each([&](const PoolKey& key) {
    add_to(reinterpret_cast<const void*>(key.group), &ContextMemory::pooled_blocks, &ContextMemory::pooled_bytes, true,
           key.bytes);
  });
  return holds;
}

void add_contexts(Snapshot& snapshot) {
  OpenclState& s = state();
  const Holds holds = holds_of_contexts(s);
  for (const DeviceGroup* group : s.devices.groups()) {
    const PartCounters& counters = group->counters;
    ContextFigures figures{.kind = "opencl",
                           .devices = {},
                           .contexts_created = read(group->contexts_created),
                           .contexts_alive = 0,
                           .allocations = read(counters.allocations),
                           .live_blocks = read(counters.live_blocks),
                           .live_bytes = read(counters.live_bytes),
                           .peak_bytes = read(counters.peak_bytes),
                           .pooled_blocks = 0,
                           .pooled_bytes = 0};
    if (!figures.contexts_created && !figures.allocations) continue;
    for (const DeviceFacts& device : group->devices) figures.devices.push_back({device.name, device.memory_bytes});
    if (figures.peak_bytes) figures.peak_at_s = static_cast<double>(read(counters.peak_at_ns)) / 1e9;
    for (const auto& [context, held] : holds) {
      if (held.group != group) continue;
      figures.contexts_alive += held.is_alive;
      figures.pooled_blocks += held.memory.pooled_blocks;
      figures.pooled_bytes += held.memory.pooled_bytes;
      if (held.memory.live_blocks || held.memory.pooled_blocks) figures.contexts.push_back(held.memory);
    }
    std::sort(figures.contexts.begin(), figures.contexts.end(), [](const ContextMemory& a, const ContextMemory& b) {
      const std::uint64_t of_a = a.live_bytes + a.pooled_bytes, of_b = b.live_bytes + b.pooled_bytes;
      return of_a != of_b ? of_a > of_b : a.number < b.number;
    });
    snapshot.contexts.push_back(std::move(figures));
  }
}

void add_copies(Snapshot& snapshot) {
  OpenclState& s = state();
  s.transfers.add_to(snapshot, "opencl");
  s.waits.add_to(snapshot, "opencl");
  s.staging.accounts().add_to(snapshot, "opencl");
  s.contexts.for_each([&](const void*, const ContextRecord& record) {
    if (record.chunks.ring) snapshot.staging_bytes += record.chunks.ring->figures().chunks * staging::kChunkBytes;
  });
}

FragmentationFigures fragmentation() {
  OpenclState& s = state();
  const PoolUsage usage = s.pool.usage();
  const std::uint64_t live = read(s.counters.live_bytes);
  FragmentationFigures figures{"opencl", live + usage.bytes, live, live, usage.bytes, usage.largest_bytes};
  figures.live_peak_bytes = read(s.counters.peak_bytes);
  figures.reserved_peak_bytes =
      std::max({figures.reserved_bytes, *figures.live_peak_bytes, read(s.reserved_peak_bytes)});
  figures.worst = s.counters.worst_moment({figures.reserved_bytes, *figures.reserved_peak_bytes});
  return figures;
}

KindFigures pool_figures(std::uint64_t* largest_kept_bytes) {
  if (!used()) return {};
  *largest_kept_bytes = fragmentation().largest_free_bytes;
  return figures();
}

std::uint64_t trim(std::uint64_t keep_bytes, std::uint64_t unused_for_ns) {
  OpenclState* s = state_if_used();
  if (!s) return 0;
  const std::uint64_t now = coarse_now_ns();
  return trim_rings(*s, unused_for_ns, now) +
         s->pool.trim({.keep_bytes = keep_bytes, .unused_for_ns = unused_for_ns}, now);
}

std::uint64_t live_bytes() {
  OpenclState* s = state_if_used();
  return s ? read(s->counters.live_bytes) : 0;
}

// Objects may be there without any memory.
void add_to(Snapshot& snapshot) {
  OpenclState* const s = state_if_used();
  if (s && (used() || read(s->contexts_created))) add_objects(snapshot);
  if (!used()) return;
  snapshot.kinds.push_back(figures());
  snapshot.fragmentation.push_back(fragmentation());
  add_leaks(snapshot.leaks);
  s->counters.add_sites("opencl", snapshot);
  add_contexts(snapshot);
  add_copies(snapshot);
}

void visit_live(VisitLive visit, void* context) {
  OpenclState* const s = state_if_used();
  if (!s) return;
  s->memory.for_each([&](const void* handle, const MemoryRecord& record) {
    if (record.state == MemoryState::live)
      visit(context, {CISTERN_OPENCL, -1, reinterpret_cast<std::uintptr_t>(handle), record.bytes, record.api,
                      record.site, record.born_ns});
  });
}

void add_judged(JudgedMemory& memory) {
  OpenclState* const s = state_if_used();
  if (!s) return;
  s->memory.for_each([&](const void* handle, const MemoryRecord& record) {
    if (record.state == MemoryState::dead) return;
    const bool is_range = record.kind == MemoryKind::svm || record.kind == MemoryKind::usm;
    if (record.state != MemoryState::live) return memory.add_handed_out(handle);
    if (!is_range) return memory.add_handle(handle);
    memory.add(reinterpret_cast<std::uintptr_t>(handle), record.bytes, record.kind == MemoryKind::svm);
  });
  const auto hand_out = [&](const void* handle, const auto&) { memory.add_handed_out(handle); };
  s->contexts.for_each(hand_out);
  s->queues.for_each(hand_out);
  s->kernels.for_each(hand_out);
  s->counted.for_each(hand_out);
}

constexpr KindPool kPools[] = {{CISTERN_OPENCL, pool_figures, trim, nullptr, &Options::opencl_pool_min}};
constexpr const library::KindMemory* kMemory[] = {&buffer_memory};

}  // namespace

extern constexpr Kind kind = {
    .name = "opencl",
    .pools = kPools,
    .memory = kMemory,
    .used = used,
    .add_to = add_to,
    .live_bytes = live_bytes,
    .fork = {before_fork, after_fork_in_parent, after_fork_in_child, after_fork_in_parent},
    .add_judged = add_judged,
    .visit_live = visit_live,
};

}  // namespace cistern::opencl
