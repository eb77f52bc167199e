// See contexts.hpp.
#include "shim/cuda/contexts.hpp"

#include <sched.h>

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
  Context* const context = identified(address, *of_device, device, is_new);
  if (!context) return nullptr;
  if (made_by_program) context->made_by_program.store(true);
  if (is_new) device_appeared(*of_device);
  return context;
}

Context* Contexts::make_known(std::uintptr_t address, Device& of_device, int ordinal, bool& is_new) {
  Locked hold(making_lock_);
  is_new = !std::exchange(of_device.is_known, true);
  if (is_new) {
    of_device.ordinal = ordinal;
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

// --- Lives of contexts whose end is not seen
bool Contexts::asks_for_ids() const { return !preloaded.load(std::memory_order_relaxed) && driver().cuCtxGetId; }

// False: this thread is at it, and forgets the memory of a context that has ended.
bool Contexts::begin_identifying() {
  for (const void* thread = nullptr;
       !identifying_.compare_exchange_weak(thread, __builtin_thread_pointer(), std::memory_order_acquire);
       thread = nullptr) {
    if (thread == __builtin_thread_pointer()) return false;
    sched_yield();
  }
  return true;
}

// Another id: the context that had the handle is gone. Its memory is forgotten before any thread sees the next life.
Context* Contexts::identified(std::uintptr_t address, Device& of_device, int ordinal, bool& is_new) {
  std::uint64_t id = 0;
  if (!asks_for_ids()) return make_known(address, of_device, ordinal, is_new);
  if (driver().cuCtxGetId(reinterpret_cast<CUcontext>(address), &id) != kSuccess) return nullptr;
  if (!begin_identifying()) return nullptr;
  Context* const before = known(reinterpret_cast<CUcontext>(address));
  if (before && before->id.load() && before->id.load() != id) has_ended(*before);
  Context* const context = make_known(address, of_device, ordinal, is_new);
  context->id.store(id);
  by_id_[id % kIdSlots].store(context, std::memory_order_release);
  end_identifying();
  return context;
}

CUresult Contexts::look_at(Context& context) {
  if (!context.alive.load(std::memory_order_acquire)) return kContextIsDestroyed;
  const std::uint32_t life = context.epoch.load();
  const std::uint64_t id = context.id.load();
  if (!id || !asks_for_ids()) return kSuccess;
  if (in_host_function) return kNotPermitted;
  std::uint64_t now = 0;
  const CUresult answer = driver().cuCtxGetId(context.handle(), &now);
  if (answer == kSuccess && now == id) [[likely]]
    return kSuccess;
  if (answer != kSuccess && answer != kContextIsDestroyed && answer != kInvalidContext) return answer;
  forget_life(context, life);
  return kContextIsDestroyed;
}

void Contexts::forget_life(Context& context, std::uint32_t life) {
  if (!begin_identifying()) return;
  if (context.alive.load() && context.epoch.load() == life) has_ended(context);
  end_identifying();
}

Context* Contexts::current(CUcontext* ended) {
  if (in_host_function) return nullptr;
  const bool by_id = asks_for_ids();
  if (std::uint64_t id = 0; by_id && driver().cuCtxGetId(nullptr, &id) == kSuccess) {
    Context* const context = by_id_[id % kIdSlots].load(std::memory_order_acquire);
    if (context && context->id.load() == id && context->alive.load(std::memory_order_acquire)) [[likely]]
      return context;
  }
  CUcontext handle = nullptr;
  if (driver().cuCtxGetCurrent(&handle) != kSuccess || !handle) return nullptr;
  if (ended) *ended = handle;
  if (Context* context = known(handle); context && preloaded.load(std::memory_order_relaxed)) [[likely]]
    return context;
  CUdevice device = -1;
  if (driver().cuCtxGetDevice(&device) != kSuccess) return nullptr;
  return make_known(handle, device, false);
}

void Contexts::note_gone(Context& context) {
  if (context.alive.exchange(false)) alive_.fetch_sub(1);
  context.epoch.fetch_add(1);
  context.id.store(0);
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
  end_identifying();
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
