// Devices: which there are, which is current, flags, limits, synchronising, resetting, peers.
#include "state.hpp"

using namespace simcuda_runtime;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  if (!count) return record(cudaErrorInvalidValue);
  *count = 0;
  return with_driver([&] {
    cudaError_t error = device_count(count);
    return error == cudaSuccess && *count == 0 ? cudaErrorNoDevice : error;  // [documented]
  });
}

cudaError_t cudaSetDevice(int device) {
  return with_driver([&] { return select_device(device); });
}

cudaError_t cudaInitDevice(int device, unsigned int device_flags, unsigned int flags) {
  return with_driver([&]() -> cudaError_t {
    CUcontext context = nullptr;
    if (flags & cudaInitDeviceFlagsAreValid)
      if (CUresult result = DRIVER(cuDevicePrimaryCtxSetFlags, 11000)(device, device_flags)) return to_runtime(result);
    return primary_context(device, &context);
  });
}

cudaError_t cudaGetDevice(int* device) {
  if (!device) return record(cudaErrorInvalidValue);
  return with_driver([&] { return current_device(device); });
}

// Any device will do for the simulator: the first one [assumed].
cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp* properties) {
  if (!device || !properties) return record(cudaErrorInvalidValue);
  *device = 0;
  return record(cudaSuccess);
}

cudaError_t cudaSetDeviceFlags(unsigned int flags) {
  return with_driver([&]() -> cudaError_t {
    int device = 0;
    if (cudaError_t error = current_device(&device)) return error;
    return to_runtime(DRIVER(cuDevicePrimaryCtxSetFlags, 11000)(device, flags & ~unsigned{cudaDeviceMapHost}));
  });
}

// Mapped pinned memory is always on where addresses are unified [documented].
cudaError_t cudaGetDeviceFlags(unsigned int* flags) {
  if (!flags) return record(cudaErrorInvalidValue);
  return with_driver([&]() -> cudaError_t {
    int device = 0, active = 0;
    if (cudaError_t error = current_device(&device)) return error;
    CUresult result = DRIVER(cuDevicePrimaryCtxGetState, 7000)(device, flags, &active);
    *flags |= cudaDeviceMapHost;
    return to_runtime(result);
  });
}

cudaError_t cudaDeviceSynchronize(void) {
  return in_context([] { return DRIVER(cuCtxSynchronize, 2000)(); });
}

cudaError_t cudaDeviceReset(void) {
  return with_driver([]() -> cudaError_t {
    int device = 0;
    if (cudaError_t error = current_device(&device)) return error;
    return reset_device(device);
  });
}

cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  return in_context([&] { return DRIVER(cuCtxGetLimit, 3010)(value, static_cast<CUlimit>(limit)); });
}

cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
  return in_context([&] { return DRIVER(cuCtxSetLimit, 3010)(static_cast<CUlimit>(limit), value); });
}

cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config) {
  return in_context([&] { return DRIVER(cuCtxGetCacheConfig, 3020)(reinterpret_cast<CUfunc_cache*>(config)); });
}

cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache config) {
  return in_context([&] { return DRIVER(cuCtxSetCacheConfig, 3020)(static_cast<CUfunc_cache>(config)); });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return in_context([&] { return DRIVER(cuCtxGetStreamPriorityRange, 5050)(least, greatest); });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return with_driver([&] { return DRIVER(cuDeviceGetPCIBusId, 4010)(text, length, device); });
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
  return with_driver([&] { return DRIVER(cuDeviceGetByPCIBusId, 4010)(device, text); });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return with_driver([&] { return DRIVER(cuDeviceCanAccessPeer, 4000)(can, device, peer); });
}

cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int source, int destination) {
  return with_driver([&] {
    return DRIVER(cuDeviceGetP2PAttribute, 8000)(value, static_cast<CUdevice_P2PAttribute>(attribute), source,
                                                 destination);
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
  return in_context([&]() -> cudaError_t {
    CUcontext context = nullptr;
    if (cudaError_t error = primary_context(peer, &context)) return error;
    return to_runtime(DRIVER(cuCtxEnablePeerAccess, 4000)(context, flags));
  });
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return in_context([&]() -> cudaError_t {
    CUcontext context = nullptr;
    if (cudaError_t error = primary_context(peer, &context)) return error;
    return to_runtime(DRIVER(cuCtxDisablePeerAccess, 4000)(context));
  });
}

cudaError_t cudaProfilerStart(void) {
  return in_context([] { return DRIVER(cuProfilerStart, 4000)(); });
}

cudaError_t cudaProfilerStop(void) {
  return in_context([] { return DRIVER(cuProfilerStop, 4000)(); });
}

}  // extern "C"
