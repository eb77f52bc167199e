// See device_work.hpp.
#include "tests/simcuda/driver/device_work.hpp"

#include <setjmp.h>
#include <signal.h>

#include <mutex>

#include "tests/simcuda/driver/address_space.hpp"
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

// Where touch_memory() goes on after an illegal address; null while this thread touches nothing for a device.
constinit thread_local sigjmp_buf* after_fault = nullptr;

constinit struct sigaction former_action {};

// Any other fault is the program's own. It gets its former action back and then the fault once more: by the same
// access, or by raise() if a process sent the signal.
void on_fault(int signal, siginfo_t* fault, void*) {
  const bool access = fault->si_code > 0;
  if (access && is_virtual_address(reinterpret_cast<uintptr_t>(fault->si_addr)) && after_fault)
    siglongjmp(*after_fault, 1);
  sigaction(signal, &former_action, nullptr);
  if (!access) raise(signal);
}

}  // namespace

// SA_NODEFER: the handler is left by a jump, which then need not restore the signal mask.
void catch_illegal_addresses() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, &former_action);
  });
}

void touch_memory(const std::function<void()>& part) {
  if (this_thread().works_for->sticky != CUDA_SUCCESS) return;
  sigjmp_buf here;
  if (sigsetjmp(here, 0)) {
    after_fault = nullptr;
    return fault();
  }
  after_fault = &here;
  part();
  after_fault = nullptr;
}

void run_task(const Task& task, Context& of_stream) {
  Context& context = task.context ? *task.context : of_stream;
  if (context.sticky != CUDA_SUCCESS) return;
  Context*& works_for = this_thread().works_for;
  Context* const before = works_for;
  works_for = &context;
  this_thread().works_on_copy = task.type == CU_GRAPH_NODE_TYPE_MEMCPY;
  may_run(task, context) ? task.work() : fault();
  works_for = before;
}

void run_tasks(const std::vector<Task>& tasks) {
  Context& context = *this_thread().works_for;
  for (const Task& task : tasks) run_task(task, context);
}

// [documented] An access to an address without memory, or without access for the device, is an illegal address.
// [measured] Of a copy it is a failed launch instead. All contexts on the device have the error (580 on an H100).
// [assumed] Other devices go on. Green contexts share it with the primary context, as they are parts of it.
void fault() {
  ++counters.faults;
  const CUresult error = this_thread().works_on_copy ? CUDA_ERROR_LAUNCH_FAILED : CUDA_ERROR_ILLEGAL_ADDRESS;
  Context& faulty = *this_thread().works_for;
  Locked lock = lock_driver();
  Context& whole = faulty.part_of ? *faulty.part_of : faulty;
  const auto lose = [&](Context& context) {
    context.sticky = error;
    for (Context* part : context.parts) part->sticky = error;
  };
  lose(whole);
  if (!settings.fault_loses_device) return;
  whole.device->lost = error;
  for (Context* context : driver().contexts)
    if (context->device == whole.device) lose(*context);
}

}  // namespace simcuda
