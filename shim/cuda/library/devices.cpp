// See devices.hpp, and cistern/device.h.
#include "shim/cuda/library/devices.hpp"

#include <algorithm>

#include "shim/cuda/device_memory.hpp"
#include "shim/cuda/hooks/hooks.hpp"
#include "shim/cuda/library/answers.hpp"
#include "shim/cuda/runtime.hpp"
#include "shim/cuda/state.hpp"
#include "shim/library/library.hpp"
#include "stats/sites.hpp"

namespace cistern::cuda {
namespace {

constinit std::atomic<Context*> primaries[kDevicesMax] = {};

CUresult device_at(int ordinal, CUdevice* device) {
  if (ordinal < 0 || ordinal >= kDevicesMax) return kInvalidDevice;
  const CUresult ready = start_driver();
  return ready == kSuccess ? driver().cuDeviceGet(device, ordinal) : ready;
}

// With a driver that tells no ids, whether it was reset and not retained again.
bool is_active(int ordinal) {
  unsigned flags = 0;
  int active = 0;
  return driver().cuDevicePrimaryCtxGetState(ordinal, &flags, &active) == kSuccess && active;
}

// Kept for the process once it was retained. If the program reset it, which ends it, it is retained again.
CUresult primary_context(int ordinal, Context** context) {
  CudaState* const s = state_if_used();
  *context = ordinal >= 0 && ordinal < kDevicesMax ? primaries[ordinal].load(std::memory_order_acquire) : nullptr;
  if (*context && s) {
    const std::uint32_t life = (*context)->epoch.load();
    const CUresult seen = s->contexts.look_at(**context);
    const bool is_seen = (*context)->id.load() || preloaded.load(std::memory_order_relaxed);
    if (seen == kSuccess && (is_seen || is_active(ordinal))) return kSuccess;
    if (seen != kSuccess && seen != kContextIsDestroyed) return seen;
    if (seen == kSuccess) s->contexts.forget_life(**context, life);
  }
  CUdevice device = 0;
  CUcontext handle = nullptr;
  if (const CUresult answer = device_at(ordinal, &device); answer != kSuccess) return answer;
  if (const CUresult answer = hook::cuDevicePrimaryCtxRetain(&handle, device); answer != kSuccess) return answer;
  *context = state().contexts.known(handle);
  if (!*context) return kInvalidContext;
  primaries[ordinal].store(*context, std::memory_order_release);
  return kSuccess;
}

// The one that a thread without a context, or with one that has ended, gets. A context that the program made and
// destroyed is its own matter.
CUresult begin_context(Context** context) {
  CUcontext handle = nullptr;
  if (const CUresult answer = driver().cuCtxGetCurrent(&handle); answer != kSuccess) return answer;
  int device = handle ? CISTERN_CURRENT : enter_runtime();
  if (handle)
    state().contexts.for_each_ever([&](Context& of) {
      if (of.handle() == handle && !of.made_by_program.load()) device = of.device->ordinal;
    });
  if (device == CISTERN_CURRENT) {
    const CUresult answer = driver().cuCtxGetDevice(&device);
    return answer == kSuccess ? kInvalidContext : answer;
  }
  if (const CUresult answer = primary_context(device, context); answer != kSuccess)
    return answer == kInvalidDevice ? kNoDevice : answer;
  if (handle && (*context)->handle() != handle) return kContextIsDestroyed;
  return driver().cuCtxSetCurrent((*context)->handle());
}

CUresult count_devices(int* count) {
  const CUresult ready = start_driver();
  return ready == kSuccess ? driver().cuDeviceGetCount(count) : ready;
}

// Where managed memory is to lie: on the device with this ordinal, or on the host.
CUresult location_of(int ordinal, CUdevice* location) {
  if (ordinal != CISTERN_CPU) return device_at(ordinal, location);
  *location = CISTERN_CPU;  // as CU_DEVICE_CPU
  return start_driver();
}

CUdeviceptr address_of(const void* memory) {
  return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(memory));
}

}  // namespace

CUresult start_driver() {
  static constinit std::atomic<bool> ready{false};
  if (in_host_function) return kNotPermitted;
  if (ready.load(std::memory_order_acquire)) [[likely]]
    return kSuccess;
  if (!load_driver()) return kNoDriver;
  const CUresult answer = driver().cuInit(0);
  if (answer == kSuccess) ready.store(true, std::memory_order_release);
  return answer;
}

int device_count() {
  int count = 0;
  return driver_found() && count_devices(&count) == kSuccess ? count : 0;
}

CUresult find_context(int device, Context** context) {
  if (const CUresult ready = start_driver(); ready != kSuccess) return ready;
  if (device != CISTERN_CURRENT) return primary_context(device, context);
  *context = state().contexts.current();
  return *context ? kSuccess : begin_context(context);
}

CUcontext current_context() {
  CUcontext context = nullptr;
  return driver_found() && driver().cuCtxGetCurrent(&context) == kSuccess ? context : nullptr;
}

bool any_context_is_current() { return current_context() != nullptr; }

InContext::InContext(CUcontext context) {
  if (!context || current_context() == context) return;
  answer_ = driver().cuCtxPushCurrent_v2(context);
  pushed_ = answer_ == kSuccess;
}

InContext::~InContext() {
  if (pushed_) leave_context();
}

void leave_context() {
  constexpr int kTries = 3;  // the caller's own context has to be current again
  CUcontext context = nullptr;
  for (int i = 0; i < kTries && driver().cuCtxPopCurrent_v2(&context) != kSuccess; ++i) {
  }
}

// The current one is current.
CUresult OnDevice::find(int device) {
  Context* context = nullptr;
  const CUresult answer = find_context(device, &context);
  if (answer == kSuccess && device != CISTERN_CURRENT) context_ = context->handle();
  return answer;
}

CUresult OnDevice::find(CurrentOr place) {
  if (const CUresult ready = start_driver(); ready != kSuccess) return ready;
  CUcontext ended = nullptr;
  if (state().contexts.current(&ended)) return kSuccess;
  return find(ended ? CISTERN_CURRENT : place.device);
}

}  // namespace cistern::cuda

namespace cistern::library {

using cuda::CUcontext;
using cuda::CUdevice;
using cuda::CUresult;
using cuda::CurrentOr;
using cuda::driver;
using cuda::OnDevice;
using cuda::status_of;

namespace {
constexpr CUresult kAccessIsThere = 704, kAccessIsNotThere = 705;
}

cistern_status device_count(int* count) {
  native = 0;
  if (!count) return CISTERN_INVALID;
  *count = 0;
  const CUresult answer = cuda::count_devices(count);
  if (answer != cuda::kSuccess) *count = 0;
  return status_of(answer == cuda::kSuccess && !*count ? cuda::kNoDevice : answer);
}

cistern_status device_memory(int device, cistern_memory_info* info) {
  native = 0;
  if (!clear_sized(info) || device < 0) return CISTERN_INVALID;
  const OnDevice here(device);
  if (!here) return status_of(here.answer());
  std::size_t free_bytes = 0, total_bytes = 0;
  const CUresult answer = cuda::hook::cuMemGetInfo_v2(&free_bytes, &total_bytes);
  if (answer != cuda::kSuccess) return status_of(answer);
  const cuda::DeviceUse use = cuda::use_of_device(device);
  write_sized(info, {0, total_bytes, free_bytes, use.live_bytes, use.cached_bytes});
  return CISTERN_OK;
}

cistern_status device_can_access(int device, int peer, int* can) {
  native = 0;
  if (!can) return CISTERN_INVALID;
  *can = 0;
  CUdevice one = 0, other = 0;
  if (const CUresult answer = cuda::device_at(device, &one); answer != cuda::kSuccess) return status_of(answer);
  if (const CUresult answer = cuda::device_at(peer, &other); answer != cuda::kSuccess) return status_of(answer);
  return status_of(driver().cuDeviceCanAccessPeer(can, one, other));
}

cistern_status device_let_access(int device, int peer, int enable) {
  native = 0;
  if (device == peer) return device < 0 || !enable ? CISTERN_INVALID : CISTERN_OK;
  if (device < 0 || peer < 0) return CISTERN_INVALID;
  cuda::Context* other = nullptr;
  if (const CUresult answer = cuda::find_context(peer, &other); answer != cuda::kSuccess) return status_of(answer);
  const OnDevice here(device);
  if (!here) return status_of(here.answer());
  const CUresult answer =
      enable ? cuda::hook::cuCtxEnablePeerAccess(other->handle(), 0) : driver().cuCtxDisablePeerAccess(other->handle());
  return answer == (enable ? kAccessIsThere : kAccessIsNotThere) ? CISTERN_OK : status_of(answer);
}

cistern_status copy(void* target, const void* source, size_t bytes, int device, void* stream) {
  const CalledFrom here(__builtin_return_address(0), Calls::occasional);
  native = 0;
  if (!bytes) return CISTERN_OK;
  if (!target || !source) return CISTERN_INVALID;
  const OnDevice there(CurrentOr{device});
  if (!there) return status_of(there.answer());
  const cuda::CUdeviceptr to = cuda::address_of(target), from = cuda::address_of(source);
  if (stream) return status_of(cuda::hook::cuMemcpyAsync(to, from, bytes, static_cast<cuda::CUstream>(stream)));
  const CUresult answer = cuda::hook::cuMemcpy(to, from, bytes);
  // Between two places on devices the driver's own call may come back early.
  return status_of(answer == cuda::kSuccess ? driver().cuStreamSynchronize(nullptr) : answer);
}

cistern_status advise(void* block, size_t bytes, cistern_advice advice, int device) {
  native = 0;
  CUdevice location = 0;
  if (!block || !bytes || device < CISTERN_CPU) return CISTERN_INVALID;
  if (const CUresult answer = cuda::location_of(device, &location); answer != cuda::kSuccess) return status_of(answer);
  const OnDevice here(CurrentOr{std::max(device, 0)});
  return status_of(here ? driver().cuMemAdvise(cuda::address_of(block), bytes, advice, location) : here.answer());
}

cistern_status prefetch(void* block, size_t bytes, int device, void* stream) {
  native = 0;
  CUdevice location = 0;
  if (!block || !bytes || device < CISTERN_CPU) return CISTERN_INVALID;
  if (const CUresult answer = cuda::location_of(device, &location); answer != cuda::kSuccess) return status_of(answer);
  const OnDevice here(CurrentOr{std::max(device, 0)});
  return status_of(
      here ? driver().cuMemPrefetchAsync(cuda::address_of(block), bytes, location, static_cast<cuda::CUstream>(stream))
           : here.answer());
}

}  // namespace cistern::library
