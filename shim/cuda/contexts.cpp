// See contexts.hpp.
#include "shim/cuda/contexts.hpp"

#include <new>
#include <utility>

#include "shim/cuda/host_functions.hpp"
#include "shim/cuda/make_once.hpp"
#include "shim/cuda/next.hpp"
#include "shim/process/process.hpp"

namespace cistern::cuda {

Context* Contexts::known(CUcontext handle) {
  Context* context = table_.find(reinterpret_cast<std::uintptr_t>(handle));
  return context && context->alive.load(std::memory_order_acquire) ? context : nullptr;
}

Context* Contexts::make_known(CUcontext handle, int device, bool made_by_program) {
  const auto address = reinterpret_cast<std::uintptr_t>(handle);
  if (!address || device < 0 || device >= kDevicesMax) return nullptr;
  Device* of_device = make_once(devices_[device]);
  bool is_new = false;
  Context* const context = make_known(address, *of_device, device, is_new);
  if (made_by_program) context->made_by_program.store(true);
  if (is_new) device_appeared(*of_device);
  return context;
}

Context* Contexts::make_known(std::uintptr_t address, Device& of_device, int ordinal, bool& is_new) {
  Locked hold(making_lock_);
  of_device.ordinal = ordinal;
  is_new = !std::exchange(of_device.is_known, true);
  if (is_new) {
    const Options& chosen = options();
    of_device.share.proportion.set_limits(
        Proportion::limits(chosen.device_pool_percent, chosen.trim_interval, chosen.device_pool_min));
  }
  Context* context = table_.find(address);
  if (!context) {
    context = new (internal_allocate(sizeof(Context))) Context(functions_, gate_);
    context->address.store(address);
    context->device = &of_device;
    table_.insert(address, context);
    alive_.fetch_add(1);
  } else if (!context->alive.load()) {
    context->device = &of_device;
    context->poisoned.store(false);
    context->alive.store(true, std::memory_order_release);
    alive_.fetch_add(1);
  }
  return context;
}

Context* Contexts::current() {
  CUcontext handle = nullptr;
  if (in_host_function) return nullptr;
  if (driver().cuCtxGetCurrent(&handle) != kSuccess || !handle) return nullptr;
  if (Context* context = known(handle)) [[likely]]
    return context;
  CUdevice device = -1;
  if (driver().cuCtxGetDevice(&device) != kSuccess) return nullptr;
  return make_known(handle, device, false);
}

void Contexts::note_gone(Context& context) {
  if (context.alive.exchange(false)) alive_.fetch_sub(1);
  context.epoch.fetch_add(1);
  context.made_by_program.store(false);
  context.poisoned.store(false);
  context.clock.forget();
  context.ring.forget();
}

void Contexts::wait_for_work(Context& context) {
  const Inside inside(context);
  const Entered entered(functions_, context.handle());
  if (!entered || context.ending.load()) return;
  const std::uint64_t number = context.clock.last();
  context.device->calls.syncs.fetch_add(1, std::memory_order_relaxed);
  if (functions_.context_synchronize() == kSuccess) context.clock.synchronised(number);
}

void Contexts::before_fork() {
  making_lock_.lock_for_fork();
  table_.before_fork();
}
void Contexts::after_fork() {
  table_.after_fork();
  making_lock_.unlock_after_fork();
}

bool Contexts::forget_in_child() {
  bool any = false;
  table_.for_each([&](Context& context) {
    any = true;
    context.epoch.fetch_add(1);
    context.alive.store(false);
    context.clock.forget_in_child();
    context.ring.forget_in_child();
  });
  alive_.store(0);
  for_each_device([](Device& device) {
    device.calls.reset();
    device.reserved_bytes = device.reserved_peak_bytes = device.tracked_bytes = 0;
    device.sampled_at_ns = 0;
    device.primary = nullptr;
    device.primary_references = 0;
    device.share.after_fork_in_child();
  });
  return any;
}

}  // namespace cistern::cuda
