// The driver's functions as the probe calls them: found by dlsym on libcuda.so.1, so that the probe starts anywhere
// and an entry point that this driver lacks answers "not found" instead of keeping the rest from running.
#pragma once
#include <cuda.h>

#include <string>

namespace probe {

// cuda.h renames many of these to their newest ABI (cuMemAlloc_v2); the members are named as the exported symbols.
// clang-format off
#define PROBE_DRIVER_FUNCTIONS(X)                                                              \
  X(cuInit) X(cuDriverGetVersion) X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetName)        \
  X(cuDeviceGetAttribute) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease)             \
  X(cuDevicePrimaryCtxReset) X(cuDevicePrimaryCtxGetState) X(cuCtxDestroy) X(cuCtxGetCurrent)  \
  X(cuCtxSetCurrent) X(cuCtxGetDevice) X(cuCtxGetId) X(cuCtxSynchronize) X(cuMemAlloc)         \
  X(cuMemAllocPitch) X(cuMemFree) X(cuMemGetInfo) X(cuMemGetAddressRange) X(cuMemAllocManaged) \
  X(cuMemAllocHost) X(cuMemHostAlloc) X(cuMemFreeHost) X(cuMemHostGetDevicePointer)            \
  X(cuMemHostGetFlags) X(cuMemHostRegister) X(cuMemHostUnregister) X(cuMemAllocAsync)          \
  X(cuMemFreeAsync) X(cuMemcpyHtoD) X(cuMemcpyDtoH) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync)  \
  X(cuMemsetD32) X(cuPointerGetAttribute) X(cuPointerSetAttribute) X(cuStreamCreate)           \
  X(cuStreamDestroy) X(cuStreamQuery) X(cuStreamSynchronize) X(cuStreamWaitEvent)              \
  X(cuStreamBeginCapture) X(cuStreamEndCapture) X(cuStreamIsCapturing)                         \
  X(cuThreadExchangeStreamCaptureMode) X(cuGraphDestroy) X(cuEventCreate) X(cuEventDestroy)    \
  X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize) X(cuModuleLoadData) X(cuModuleUnload) \
  X(cuModuleGetFunction) X(cuLaunchKernel) X(cuIpcGetMemHandle) X(cuIpcOpenMemHandle)          \
  X(cuIpcCloseMemHandle) X(cuGetProcAddress) X(cuMemAddressReserve) X(cuMemAddressFree)        \
  X(cuMemCreate) X(cuMemRelease) X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess)                   \
  X(cuMemGetAllocationGranularity) X(cuMemRetainAllocationHandle)
// clang-format on

struct Driver {
#define PROBE_MEMBER(name) decltype(&::name) name;
  PROBE_DRIVER_FUNCTIONS(PROBE_MEMBER)
#undef PROBE_MEMBER
  // The oldest ABI of this one is in every driver; cuda.h no longer declares it.
  CUresult (*create_context)(CUcontext*, unsigned, CUdevice);
  void* library;
};

// Opens the library once; ends the process with a line on stderr where there is none.
const Driver& driver();

// cuInit, device 0's primary context retained and current. Ends the process with a line on stderr where that fails.
CUcontext open_device();

// "ok" or the error's name; ends the process where a step that only prepares a measurement fails.
std::string name_of(CUresult result);
void must(CUresult result, const char* step);
#define PROBE_MUST(call) ::probe::must((call), #call)

// Empties this thread's stack of contexts: setting none is only popping one.
void leave_contexts();

CUdeviceptr allocate(size_t bytes);
void* allocate_host(size_t bytes, unsigned flags = 0);
CUstream create_stream(unsigned flags = CU_STREAM_NON_BLOCKING);

// Keeps a stream busy for this long; and makes the next work on a stream fault (the context is lost with it).
void keep_busy(CUstream stream, int milliseconds);
void cause_fault(CUstream stream);

}  // namespace probe
