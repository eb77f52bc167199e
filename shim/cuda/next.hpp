// The real driver functions below the shim: one per CUDA_DRIVER row of symbols/cuda.def, and those that only Cistern
// calls.
//
// They are found by name in libcuda; when a program asks cuGetProcAddress for a row, the pointer that the driver
// answers takes its place (it need not be the exported one).
#pragma once
#include <atomic>

#include "backends/cuda/api.hpp"
#include "pool/base/foreign.hpp"

namespace cistern::cuda {

template <class Signature>
class RealFunction;
template <class Result, class... Arguments>
class RealFunction<Result(Arguments...)> {
 public:
  using Pointer = Result (*)(Arguments...);
  // A function that the driver lacks answers as the driver does for a name that it does not know.
  Result operator()(Arguments... arguments) const {
    const Pointer real = get();
    return real ? Foreign<Result(Arguments...)>(real)(arguments...) : kNotFound;
  }
  Pointer get() const { return function_.load(std::memory_order_relaxed); }
  explicit operator bool() const { return get() != nullptr; }
  void set(void* function) { function_.store(reinterpret_cast<Pointer>(function), std::memory_order_relaxed); }

 private:
  std::atomic<Pointer> function_{nullptr};
};

struct DriverTable {
#define CUDA_DRIVER(action, base, version, stream, name, parameters, arguments) RealFunction<CUresult parameters> name;
#include "shim/symbols/cuda.def"
  RealFunction<CUresult(CUcontext*)> cuCtxGetCurrent;
  RealFunction<CUresult(CUcontext)> cuCtxPushCurrent_v2;
  RealFunction<CUresult(CUcontext*)> cuCtxPopCurrent_v2;
  RealFunction<CUresult(CUdevice*)> cuCtxGetDevice;
  RealFunction<CUresult(CUdevice, unsigned*, int*)> cuDevicePrimaryCtxGetState;
  RealFunction<CUresult(CUstream, int*)> cuStreamIsCapturing;
  RealFunction<CUresult(CUstream, CUcontext*)> cuStreamGetCtx;
  RealFunction<CUresult(CUstream, int*, std::uint64_t*, CUgraph*, void*, void*)> cuStreamGetCaptureInfo_v2;
  RealFunction<CUresult(CUdevice, int, void*)> cuDeviceGetGraphMemAttribute;
  RealFunction<CUresult(float*, CUevent, CUevent)> cuEventElapsedTime;
  RealFunction<CUresult(int*, int, CUdevice)> cuDeviceGetAttribute;
  RealFunction<CUresult(std::size_t*, const CUmemAllocationProp*, int)> cuMemGetAllocationGranularity;
  RealFunction<CUresult(CUcontext, std::uint64_t*)> cuCtxGetId;
  // Only callers of the C interface need these.
  RealFunction<CUresult(unsigned)> cuInit;
  RealFunction<CUresult(int*)> cuDeviceGetCount;
  RealFunction<CUresult(CUdevice*, int)> cuDeviceGet;
  RealFunction<CUresult(int*, CUdevice, CUdevice)> cuDeviceCanAccessPeer;
  RealFunction<CUresult(CUcontext)> cuCtxDisablePeerAccess;
  RealFunction<CUresult(CUcontext)> cuCtxSetCurrent;
};

// Null functions while no libcuda is in the process.
DriverTable& driver();
bool driver_found();
// The same, and libcuda is loaded if it is not yet, as the runtime's first call would do. Calls of the library that ask
// for CUDA need this. It stays loaded.
bool load_driver();

void driver_before_fork();
void driver_after_fork();

}  // namespace cistern::cuda
