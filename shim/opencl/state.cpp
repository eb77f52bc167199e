// See state.hpp.
#include "shim/opencl/state.hpp"

#include <algorithm>
#include <new>

#include "shim/opencl/layers_variable.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/live_page.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/process.hpp"
#include "shim/process/uncounted.hpp"

namespace cistern::opencl {
namespace {

constexpr std::size_t kDeadRecordsMax = 4096;

constinit std::atomic<OpenclState*> the_state{nullptr};
alignas(OpenclState) constinit unsigned char state_memory[sizeof(OpenclState)] = {};
constinit Lock state_lock;

#define CISTERN_REAL(name) [](auto... arguments) { return next().name.own(arguments...); }
Functions functions_below() {
  return {.create_buffer = CISTERN_REAL(clCreateBuffer),
          .release_memory = CISTERN_REAL(clReleaseMemObject),
          .memory_info = CISTERN_REAL(clGetMemObjectInfo),
          .enqueue_marker = CISTERN_REAL(clEnqueueMarkerWithWaitList),
          .event_info = CISTERN_REAL(clGetEventInfo),
          .release_event = CISTERN_REAL(clReleaseEvent),
          .wait_for_events = CISTERN_REAL(clWaitForEvents),
          .flush = CISTERN_REAL(clFlush),
          .finish = CISTERN_REAL(clFinish),
          .map_buffer = CISTERN_REAL(clEnqueueMapBuffer),
          .unmap = CISTERN_REAL(clEnqueueUnmapMemObject),
          .create_queue = CISTERN_REAL(clCreateCommandQueue),
          .release_queue = CISTERN_REAL(clReleaseCommandQueue)};
}
#undef CISTERN_REAL

OpenclState& make_state() {
  OpenclState* made = nullptr;
  {
    const Uncounted uncounted;
    next();  // the loader is looked for before our lock is taken
    learn_whether_objects_have_tables();
    const Locked hold(state_lock);
    if (OpenclState* const others = the_state.load(std::memory_order_acquire)) return *others;
    made = new (state_memory) OpenclState(functions_below());
    restore_layers_variable();
    the_state.store(made, std::memory_order_release);
    gpu_state_made.store(true, std::memory_order_release);
  }
  call_gpu_state_hook();
  return *made;
}

}  // namespace

OpenclState::OpenclState(const Functions& below)
    : functions(below), source(*this, functions, calls), pool(source), sites_on(options().sites != "off") {
  const Options& chosen = options();
  pool.set_limits(
      {.bytes_max = chosen.opencl_pool_max, .bytes_min = chosen.opencl_pool_min, .interval_ns = chosen.trim_interval});
  proportion.set_limits(Proportion::limits(chosen.opencl_pool_percent, chosen.trim_interval, chosen.opencl_pool_min));
  staging.set_limits({.interval_ns = chosen.trim_interval});
}

OpenclState& state() {
  look_at_live_page();
  OpenclState* made = the_state.load(std::memory_order_acquire);
  return made ? *made : make_state();
}

OpenclState* state_if_used() { return the_state.load(std::memory_order_acquire); }

void remember_dead(OpenclState& s, const void* handle) {
  const void* oldest = nullptr;
  {
    Locked hold(s.dead_lock);
    s.dead.push_back(handle);
    if (s.dead.size() > kDeadRecordsMax) {
      oldest = s.dead.front();
      s.dead.pop_front();
    }
  }
  MemoryRecord forgotten;
  if (oldest)
    s.memory.take_if(oldest, forgotten, [](const MemoryRecord& record) { return record.state == MemoryState::dead; });
}

void RecordedBuffers::release(cl_mem buffer) {
  Vector<Use> uses;  // ends outside the lock
  s_.memory.with(buffer, [&](MemoryRecord* record) {
    if (record) record->state = MemoryState::dead, record->uses.swap(uses);
  });
  remember_dead(s_, buffer);
  BufferSource::release(buffer);
}

Vector<std::shared_ptr<QueueClock>> clocks_of(cl_context context) {
  Vector<std::shared_ptr<QueueClock>> clocks;
  state().contexts.with(context, [&](ContextRecord* record) {
    if (!record) return;
    for (auto& known : record->clocks)
      if (auto clock = known.lock()) clocks.push_back(std::move(clock));
  });
  return clocks;
}

ContextTraits traits_of(OpenclState& s, cl_context context) {
  return s.context_traits.of(context, [&](const void* handle) {
    return s.contexts.with(handle, [](const ContextRecord* record) -> ContextTraits {
      if (!record) return {};
      return {true,
              record->command_buffers,
              record->unseen_commands,
              record->inherited,
              record->all_queues_seen,
              record->calls_back,
              record->in_host_memory};
    });
  });
}

std::shared_ptr<QueueClock> clock_of(OpenclState& s, cl_command_queue queue) {
  return s.queues.with(queue, [](Queue* record) { return record ? record->clock : nullptr; });
}

cl_context context_of(OpenclState& s, cl_command_queue queue) {
  return s.queues.with(queue, [](Queue* record) { return record ? record->context : nullptr; });
}

void drain_context(cl_context context) { drain_context(context, clocks_of(context)); }

void drain_context(cl_context context, const Vector<std::shared_ptr<QueueClock>>& clocks) {
  OpenclState& s = state();
  s.pool.drain(reinterpret_cast<std::uintptr_t>(context));
  give_back_chunks(s, context);
  for (auto& clock : clocks) clock->drop_markers();
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

void state_before_fork() { state_lock.lock_for_fork(); }
void state_after_fork() { state_lock.unlock_after_fork(); }

}  // namespace cistern::opencl
