// Fork, as the state of CUDA sees it. CUDA does not work in a child of a process that used it: what the parent made is
// inherited, never freed by us; the child's own calls get the driver's own answers.
#include "shim/cuda/fork.hpp"

#include "shim/cuda/host_functions.hpp"
#include "shim/cuda/state.hpp"
#include "shim/cuda/unknown.hpp"

namespace cistern::cuda {

// Copies that are held go to the driver first, while no lock of this kind is held: the child would not have them.
void before_fork() {
  if (CudaState* s = state_if_used()) s->gather.before_fork(*s);
  state_before_fork();
  driver_before_fork();
  unknown_before_fork();
  host_functions_before_fork();
  runtime_before_fork();
  pitch_before_fork();
  CudaState* s = state_if_used();
  if (!s) return;
  s->captures.before_fork();
  s->pools.before_fork();
  s->segments.before_fork();
  s->objects.before_fork();
  s->graph_memory.before_fork();
  s->account.before_fork();
  s->blocks.before_fork();
  s->contexts.before_fork();
  s->transfers.before_fork();
  s->waits.before_fork();
  s->staging.before_fork();
}

namespace {

void unlock_tables(CudaState& s) {
  s.staging.after_fork();
  s.waits.after_fork();
  s.transfers.after_fork();
  s.contexts.after_fork();
  s.blocks.after_fork();
  s.account.after_fork();
  s.graph_memory.after_fork();
  s.objects.after_fork();
  s.segments.after_fork();
}

void unlock_files() {
  pitch_after_fork();
  runtime_after_fork();
  host_functions_after_fork();
  unknown_after_fork();
  driver_after_fork();
  state_after_fork();
}

}  // namespace

void after_fork_in_parent() {
  if (CudaState* s = state_if_used()) {
    unlock_tables(*s);
    s->pools.after_fork_in_parent();
    s->captures.after_fork();
    s->gather.after_fork_in_parent();
  }
  unlock_files();
}

void after_fork_in_child() {
  unlock_files();
  CudaState* s = state_if_used();
  if (!s) return;
  unlock_tables(*s);
  s->pools.after_fork_in_child();
  s->captures.after_fork();
  s->captures.forget_in_child();
  s->staging.after_fork_in_child();
  s->gather.after_fork_in_child();
  // A parent that never had a context may leave a working driver to the child.
  if (s->contexts.forget_in_child()) s->gate.closed.store(true);
  s->blocks.table.clear();
  s->blocks.ranges.clear();
  s->segments.after_fork_in_child();
  s->account.forget_in_child();
  s->graph_memory.forget_in_child();
  s->objects.forget_in_child();
  s->transfers.clear();
  s->waits.clear();
}

}  // namespace cistern::cuda
