// See devices.hpp, and cistern/device.h.
#include "shim/cuda/library/devices.hpp"

#include <algorithm>

#include "shim/cuda/device_memory.hpp"
#include "shim/cuda/hooks/hooks.hpp"
#include "shim/cuda/library/answers.hpp"
#include "shim/cuda/state.hpp"
#include "shim/library/library.hpp"
#include "stats/sites.hpp"

namespace cistern::cuda {
namespace {

constinit std::atomic<CUcontext> primaries[kDevicesMax] = {};

// The driver is there, and initialised.
CUresult prepare_driver() {
  static constinit std::atomic<bool> ready{false};
  if (ready.load(std::memory_order_acquire)) return kSuccess;
  if (!driver_found() || !driver().cuInit || !driver().cuDeviceGet) return kNoDevice;
  const CUresult answer = driver().cuInit(0);
  if (answer == kSuccess) ready.store(true, std::memory_order_release);
  return answer;
}

CUresult device_at(int ordinal, CUdevice* device) {
  if (ordinal < 0 || ordinal >= kDevicesMax) return kInvalidDevice;
  const CUresult ready = prepare_driver();
  return ready == kSuccess ? driver().cuDeviceGet(device, ordinal) : ready;
}

// Kept for the process once it was retained. If the program reset it, which ends it, it is retained again.
CUresult primary_context(int ordinal, CUcontext* context) {
  CUdevice device = 0;
  if (const CUresult answer = device_at(ordinal, &device); answer != kSuccess) return answer;
  unsigned flags = 0;
  int active = 0;
  *context = primaries[ordinal].load(std::memory_order_acquire);
  if (*context && driver().cuDevicePrimaryCtxGetState(device, &flags, &active) == kSuccess && active) return kSuccess;
  const CUresult answer = hook::cuDevicePrimaryCtxRetain(context, device);
  if (answer == kSuccess) primaries[ordinal].store(*context, std::memory_order_release);
  return answer;
}

CUresult count_devices(int* count) {
  const CUresult ready = prepare_driver();
  return ready == kSuccess ? driver().cuDeviceGetCount(count) : ready;
}

// Where managed memory is to lie: on the device with this ordinal, or on the host.
CUresult location_of(int ordinal, CUdevice* location) {
  if (ordinal != CISTERN_CPU) return device_at(ordinal, location);
  *location = CISTERN_CPU;  // as CU_DEVICE_CPU
  return prepare_driver();
}

CUdeviceptr address_of(const void* memory) {
  return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(memory));
}

}  // namespace

int device_count() {
  int count = 0;
  return count_devices(&count) == kSuccess ? count : 0;
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

CUresult OnDevice::find(int device) {
  return device == CISTERN_CURRENT ? kSuccess : primary_context(device, &context_);
}

}  // namespace cistern::cuda

namespace cistern::library {

using cuda::CUcontext;
using cuda::CUdevice;
using cuda::CUresult;
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
  if (device < 0) return CISTERN_INVALID;
  CUcontext other = nullptr;
  if (const CUresult answer = cuda::primary_context(peer, &other); answer != cuda::kSuccess) return status_of(answer);
  const OnDevice here(device);
  if (!here) return status_of(here.answer());
  const CUresult answer = enable ? cuda::hook::cuCtxEnablePeerAccess(other, 0) : driver().cuCtxDisablePeerAccess(other);
  return answer == (enable ? kAccessIsThere : kAccessIsNotThere) ? CISTERN_OK : status_of(answer);
}

cistern_status copy(void* target, const void* source, size_t bytes, int device, void* stream) {
  const CalledFrom here(__builtin_return_address(0), Calls::occasional);
  native = 0;
  if (!bytes) return CISTERN_OK;
  if (!target || !source) return CISTERN_INVALID;
  const OnDevice there(cuda::any_context_is_current() ? CISTERN_CURRENT : device);
  if (!there) return status_of(there.answer());
  if (!cuda::driver_found()) return CISTERN_NO_DRIVER;
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
  const OnDevice here(cuda::any_context_is_current() ? CISTERN_CURRENT : std::max(device, 0));
  return status_of(here ? driver().cuMemAdvise(cuda::address_of(block), bytes, advice, location) : here.answer());
}

cistern_status prefetch(void* block, size_t bytes, int device, void* stream) {
  native = 0;
  CUdevice location = 0;
  if (!block || !bytes || device < CISTERN_CPU) return CISTERN_INVALID;
  if (const CUresult answer = cuda::location_of(device, &location); answer != cuda::kSuccess) return status_of(answer);
  const OnDevice here(cuda::any_context_is_current() ? CISTERN_CURRENT : std::max(device, 0));
  return status_of(
      here ? driver().cuMemPrefetchAsync(cuda::address_of(block), bytes, location, static_cast<cuda::CUstream>(stream))
           : here.answer());
}

}  // namespace cistern::library
