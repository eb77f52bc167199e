// What happens to the state of OpenCL at a fork: objects of the parent are inherited by the child, never released by
// us.
#include "shim/opencl/fork.hpp"

#include "shim/opencl/state.hpp"

namespace cistern::opencl {
namespace {

template <class Do>
void for_each_table(OpenclState& s, Do each) {
  each(s.memory);
  each(s.contexts);
  each(s.queues);
  each(s.kernels);
  each(s.counted);
  each(s.host_ranges);
  each(s.transfers);
  each(s.waits);
  each(s.staging);
  each(s.devices);
  each(s.first_uses);
}

void unlock_tables(OpenclState& s) {
  s.dead_lock.unlock_after_fork();
  for_each_table(s, [](auto& table) { table.after_fork(); });
}

void forget_figures(OpenclState& s) {
  s.counters.reset();
  s.calls.reset();
  s.transfers.clear();
  s.waits.clear();
  s.staging.forget_in_child();
  s.first_uses.forget_in_child();
  s.devices.forget_figures_in_child();
  s.headroom.forget();
  s.proportion.after_fork_in_child();
  s.contexts_created = s.queues_created = s.kernels_created = 0;
  for (Counter& created : s.counted_created) created = 0;
}

}  // namespace

void before_fork() {
  next_before_fork();
  state_before_fork();
  OpenclState* s = state_if_used();
  if (!s) return;
  s->pool.before_fork();
  for_each_table(*s, [](auto& table) { table.before_fork(); });
  s->dead_lock.lock_for_fork();
}

void after_fork_in_parent() {
  if (OpenclState* s = state_if_used()) {
    unlock_tables(*s);
    s->pool.after_fork_in_parent();
  }
  state_after_fork();
  next_after_fork();
}

void after_fork_in_child() {
  if (OpenclState* s = state_if_used()) {
    unlock_tables(*s);
    s->pool.after_fork_in_child();
    QueueClock::abandon_all_in_child();
    const auto inherit = [](const void*, auto& record) { record.inherited = true; };
    for_each_table(*s, [&](auto& table) {
      if constexpr (requires { table.for_each(inherit); }) table.for_each(inherit);
    });
    s->memory.for_each([](const void*, MemoryRecord& record) {
      record.first_use = FirstUse::none;
      record.part = nullptr;
    });
    s->context_traits.changed();
    // Another thread may have been in the midst of a ring: it stays where it is.
    s->contexts.for_each([](const void*, ContextRecord& record) { new (&record.chunks) ContextChunks; });
    forget_figures(*s);
  }
  state_after_fork();
  next_after_fork();
}

}  // namespace cistern::opencl
