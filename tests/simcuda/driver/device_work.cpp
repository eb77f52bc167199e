// See device_work.hpp.
#include "tests/simcuda/driver/device_work.hpp"

#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/settings.hpp"
#include "tests/simcuda/driver/thread_state.hpp"

namespace simcuda {
namespace {

// A graph's tasks are judged one by one, when each of them runs.
bool may_run(const Task& task, const Context& context) {
  if (task.touched.empty() || task.type == CU_GRAPH_NODE_TYPE_GRAPH) return true;
  Locked lock = lock_driver();
  return may_touch(lock, task.touched, *context.device);
}

}  // namespace

void run_task(const Task& task, Context& of_stream) {
  Context& context = task.context ? *task.context : of_stream;
  if (context.sticky != CUDA_SUCCESS) return;
  Context*& works_for = this_thread().works_for;
  Context* const before = works_for;
  works_for = &context;
  may_run(task, context) ? task.work() : fault();
  works_for = before;
}

void run_tasks(const std::vector<Task>& tasks) {
  Context& context = *this_thread().works_for;
  for (const Task& task : tasks) run_task(task, context);
}

// [documented] An access to an address without memory, or without access for the device, is an illegal address.
void fault() {
  ++counters.faults;
  this_thread().works_for->sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
}

}  // namespace simcuda
