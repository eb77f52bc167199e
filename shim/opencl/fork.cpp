// What happens to the state of OpenCL at a fork: objects of the parent are inherited by the child, never released by
// us.
#include "shim/opencl/fork.hpp"

#include "shim/opencl/state.hpp"

namespace cistern::opencl {

void before_fork() {
  next_before_fork();
  state_before_fork();
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
  state_after_fork();
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
  state_after_fork();
  next_after_fork();
}

}  // namespace cistern::opencl
