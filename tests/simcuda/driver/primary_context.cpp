// Primary contexts: one per device, shared by everybody in the process who retains it.
#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/context.hpp"

using namespace simcuda;

// [measured] After a reset the new primary context has the old one's handle value, so that a handle does not tell them
// apart.
CUresult simcuda::retain_primary(Locked& lock, Device& device) {
  if (!device.primary->alive)
    if (const CUresult lost = start_context(lock, *device.primary, device, device.primary_flags)) return lost;
  ++device.primary_references;
  return CUDA_SUCCESS;
}

void simcuda::release_primary(Locked& lock, Device& device) {
  if (--device.primary_references == 0) end_context(lock, *device.primary);
}

extern "C" CUresult cuDevicePrimaryCtxRetain(CUcontext* handle, CUdevice ordinal) {
  SIMCUDA_CALL(kContextless);
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  Device* device = find_device(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if (const CUresult lost = retain_primary(lock, *device)) return lost;
  *handle = device->primary->handle();
  return CUDA_SUCCESS;
}

// [documented] The context is reset once its last reference is released.
static CUresult release(CUdevice ordinal) {
  Locked lock = lock_driver();
  Device* device = find_device(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if (!device->primary_references) return CUDA_ERROR_INVALID_CONTEXT;
  release_primary(lock, *device);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  SIMCUDA_CALL(kContextless);
  return release(device);
}

extern "C" CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  SIMCUDA_CALL(kContextless);
  return release(device);
}

// [documented] Destroys all that the context has, for the whole process. [assumed] The references stay; a new
// retain makes it anew. After a fault no retain succeeds in the process any more. [measured: 580 on an H100]
static CUresult reset(CUdevice ordinal) {
  Locked lock = lock_driver();
  Device* device = find_device(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  end_context(lock, *device->primary);
  return CUDA_SUCCESS;
}

extern "C" CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  SIMCUDA_CALL(kContextless);
  return reset(device);
}

extern "C" CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  SIMCUDA_CALL(kContextless);
  return reset(device);
}

static CUresult set_flags(CUdevice ordinal, unsigned flags) {
  Locked lock = lock_driver();
  Device* device = find_device(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  device->primary_flags = flags;
  if (device->primary->alive) device->primary->flags = flags;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
  SIMCUDA_CALL(kContextless);
  return set_flags(device, flags);
}

extern "C" CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  SIMCUDA_CALL(kContextless);
  return set_flags(device, flags);
}

extern "C" CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned* flags, int* active) {
  SIMCUDA_CALL(kContextless);
  Locked lock = lock_driver();
  Device* device = find_device(ordinal);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if (flags) *flags = device->primary_flags;
  if (active) *active = device->primary->alive;
  return CUDA_SUCCESS;
}
