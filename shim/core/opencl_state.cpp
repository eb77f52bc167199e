// See opencl_state.hpp. Also what the composition root asks of OpenCL: figures, leaks, trim, fork.
#include "shim/core/opencl_state.hpp"

#include <new>

#include "pool/size_class.hpp"
#include "shim/core/core.hpp"
#include "shim/core/lookup.hpp"

namespace cistern::opencl {
namespace {

constinit std::atomic<OpenclState*> the_state{nullptr};
alignas(OpenclState) constinit unsigned char state_memory[sizeof(OpenclState)] = {};
constinit Lock state_lock;

Functions functions_below() {
  const Table& real = next();
  return {.create_buffer = real.clCreateBuffer,
          .release_memory = release_pooled,
          .memory_info = real.clGetMemObjectInfo,
          .enqueue_marker = real.clEnqueueMarkerWithWaitList,
          .event_info = real.clGetEventInfo,
          .release_event = real.clReleaseEvent};
}

OpenclState& make_state() {
  host::Uncounted uncounted;
  next();  // finds the loader; like the unwinder's loading, not under our lock
  if (options().sites != "off") prepare_sites(real_dlsym());
  Locked hold(state_lock);
  if (OpenclState* made = the_state.load(std::memory_order_acquire)) return *made;
  auto* made = new (state_memory) OpenclState;
  restore_layers_variable();
  the_state.store(made, std::memory_order_release);
  gpu_state_made.store(true, std::memory_order_release);
  return *made;
}

}  // namespace

OpenclState::OpenclState()
    : functions(functions_below()), source(functions, calls), pool(source), sites_on(options().sites != "off") {
  const Options& chosen = options();
  pool.set_limits(
      {.bytes_max = chosen.opencl_pool_max, .bytes_min = chosen.opencl_pool_min, .interval_ns = chosen.trim_interval});
}

OpenclState& state() {
  OpenclState* made = the_state.load(std::memory_order_acquire);
  return made ? *made : make_state();
}

OpenclState* state_if_used() { return the_state.load(std::memory_order_acquire); }

Vector<std::shared_ptr<QueueClock>> clocks_of(cl_context context) {
  Vector<std::shared_ptr<QueueClock>> clocks;
  state().contexts.with(context, [&](Context* record) {
    if (!record) return;
    for (auto& known : record->clocks)
      if (auto clock = known.lock()) clocks.push_back(std::move(clock));
  });
  return clocks;
}

void drain_context(cl_context context) {
  state().pool.drain(reinterpret_cast<std::uintptr_t>(context));
  for (auto& clock : clocks_of(context)) clock->drop_markers();
}

const char* kind_name(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::buffer:
      return "buffer";
    case MemoryKind::sub_buffer:
      return "sub-buffer";
    case MemoryKind::image:
      return "image";
    case MemoryKind::pipe:
      return "pipe";
    case MemoryKind::external:
      return "external memory";
    case MemoryKind::svm:
      return "SVM";
    case MemoryKind::usm:
      return "USM";
  }
  return "";
}

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
  s.pool.for_each([&](std::uint64_t bytes) {
    for (ClassFigures& c : figures.classes)
      if (c.size_class == report_class(bytes)) ++c.cached_blocks, c.cached_bytes += bytes;
  });
  return figures;
}

namespace {

struct LiveMemory {
  const void* handle;
  Memory record;
};

// The released ancestor whose memory a sub-buffer or image keeps alive: its bytes, else 0.
std::uint64_t kept_parent_bytes(OpenclState& s, const void* parent) {
  while (parent) {
    State state = State::dead;
    std::uint64_t bytes = 0;
    const void* grandparent = nullptr;
    s.memory.with(parent, [&](Memory* record) {
      if (record) state = record->state, bytes = record->bytes, grandparent = record->parent;
    });
    if (state != State::orphan) return 0;
    if (!grandparent) return bytes;
    parent = grandparent;
  }
  return 0;
}

// Blocks are grouped by site, by call where sites are off; those that keep a released parent apart from the others.
std::uint64_t leak_key(const Memory& record, bool keeps_parent) {
  const std::uint64_t where = record.site ? record.site : reinterpret_cast<std::uintptr_t>(record.api);
  return where * 2 + keeps_parent;
}

}  // namespace

void add_leaks(Vector<LeakFigures>& leaks) {
  OpenclState* s = state_if_used();
  if (!s) return;
  Vector<LiveMemory> live;
  s->memory.for_each([&](const void* handle, Memory& record) {
    if (record.state == State::live && !record.inherited) live.push_back({handle, record});
  });
  Map<std::uint64_t, std::size_t> places;
  // One parent's bytes are named once, however many sub-buffers keep it.
  Map<const void*, bool> parents_named;
  for (const LiveMemory& block : live) {
    const Memory& record = block.record;
    std::uint64_t kept = record.parent ? kept_parent_bytes(*s, record.parent) : 0;
    if (kept && !parents_named.emplace(record.parent, true).second) kept = 0;
    const auto [place, is_new] = places.try_emplace(leak_key(record, kept != 0), leaks.size());
    if (is_new) leaks.push_back(leak_at(record.site, "opencl", kind_name(record.kind), record.api));
    LeakFigures& leak = leaks[place->second];
    ++leak.blocks;
    leak.bytes += record.bytes + kept;
    ++leak.created;
    leak.retained += record.retains;
    leak.released += record.releases;
    if (kept) leak.kept_parent_bytes = leak.kept_parent_bytes.value_or(0) + kept;
    const double born_s = static_cast<double>(record.born_ns) / 1e9;
    if (born_s < leak.first_s) leak.first_s = born_s;
    if (born_s > leak.last_s) leak.last_s = born_s;
  }
}

void add_objects(Vector<ObjectFigures>& objects) {
  OpenclState* s = state_if_used();
  if (!s) return;
  const auto count_alive = [](auto& table, auto wanted) {
    std::uint64_t alive = 0;
    table.for_each([&](const void*, auto& record) { alive += !record.inherited && wanted(record); });
    return alive;
  };
  const auto referenced = [](const auto& record) { return record.references != 0; };
  objects.push_back({"contexts", read(s->contexts_created), count_alive(s->contexts, referenced)});
  objects.push_back({"queues", read(s->queues_created), count_alive(s->queues, referenced)});
  objects.push_back({"kernels", read(s->kernels_created), count_alive(s->kernels, referenced)});
  constexpr const char* kNames[] = {"programs", "events", "samplers"};
  for (int type = 0; type < static_cast<int>(CountedType::count); ++type)
    objects.push_back({kNames[type], read(s->counted_created[type]),
                       count_alive(s->counted, [&](const Counted& c) { return static_cast<int>(c.type) == type; })});
}

FragmentationFigures fragmentation() {
  OpenclState& s = state();
  const PoolUsage usage = s.pool.usage();
  const std::uint64_t live = read(s.counters.live_bytes);
  return {"opencl", live + usage.bytes, live, live, usage.bytes, usage.largest_bytes};
}

std::uint64_t trim(std::uint64_t keep_bytes, std::uint64_t unused_for_ns) {
  OpenclState* s = state_if_used();
  if (!s) return 0;
  return s->pool.trim({.keep_bytes = keep_bytes, .unused_for_ns = unused_for_ns}, coarse_now_ns());
}

void before_fork() {
  next_before_fork();
  state_lock.lock_for_fork();
  OpenclState* s = state_if_used();
  if (!s) return;
  s->pool.before_fork();
  s->memory.before_fork();
  s->contexts.before_fork();
  s->queues.before_fork();
  s->kernels.before_fork();
  s->counted.before_fork();
  s->dead_lock.lock_for_fork();
}

namespace {
void unlock_tables(OpenclState* s) {
  s->dead_lock.unlock_after_fork();
  s->counted.after_fork();
  s->kernels.after_fork();
  s->queues.after_fork();
  s->contexts.after_fork();
  s->memory.after_fork();
}
}  // namespace

void after_fork_in_parent() {
  if (OpenclState* s = state_if_used()) {
    unlock_tables(s);
    s->pool.after_fork_in_parent();
  }
  state_lock.unlock_after_fork();
  next_after_fork();
}

void after_fork_in_child() {
  if (OpenclState* s = state_if_used()) {
    unlock_tables(s);
    s->pool.after_fork_in_child();
    QueueClock::abandon_all_in_child();
    const auto inherit = [](const void*, auto& record) { record.inherited = true; };
    s->memory.for_each(inherit);
    s->contexts.for_each(inherit);
    s->queues.for_each(inherit);
    s->kernels.for_each(inherit);
    s->counted.for_each(inherit);
    s->counters.reset();
    s->calls.reset();
    s->contexts_created = s->queues_created = s->kernels_created = 0;
    for (Counter& created : s->counted_created) created = 0;
  }
  state_lock.unlock_after_fork();
  next_after_fork();
}

}  // namespace cistern::opencl
