// What every call of the runtime has in common: it fails once the runtime is unloaded, starts the driver and, for most
// calls, a context, and leaves its error as the thread's last one.
#pragma once
#include <cuda_runtime_api.h>

#include "driver.hpp"

namespace simcuda_runtime {

// The two families number their errors alike [documented: driver_types.h names the same values].
inline cudaError_t to_runtime(CUresult result) { return static_cast<cudaError_t>(result); }
inline cudaError_t to_runtime(cudaError_t result) { return result; }

// Every failure becomes the thread's last error; returns it.
cudaError_t record(cudaError_t error);
cudaError_t last_error();
cudaError_t take_last_error();

// The driver is open and cuInit has succeeded; cudaErrorCudartUnloading after the runtime's own destructor
// [documented].
cudaError_t start_driver();

// A context is current in this thread: the one that the program set through the driver [documented], else the primary
// one of the thread's device.
cudaError_t enter_context();

// After a call that found its context gone: true when it was a primary context that somebody else had reset, and
// enter_context will start it again [assumed].
bool context_was_reset(cudaError_t error);

cudaError_t device_count(int* count);
cudaError_t select_device(int device);  // and starts its primary context [documented since 12.0]
cudaError_t current_device(int* device);
cudaError_t primary_context(int device, CUcontext* context);  // retained once per device and process
cudaError_t reset_device(int device);
unsigned long long reset_count();  // of all devices

template <class Work>
cudaError_t with_driver(Work work) {
  if (cudaError_t error = start_driver()) return record(error);
  return record(to_runtime(work()));
}

template <class Work>
cudaError_t try_in_context(Work& work) {
  if (cudaError_t error = enter_context()) return error;
  return to_runtime(work());
}

template <class Work>
cudaError_t in_context(Work work) {
  cudaError_t result = try_in_context(work);
  if (result != cudaSuccess && context_was_reset(result)) result = try_in_context(work);
  return record(result);
}

inline CUdeviceptr address_of(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }
inline void* pointer_of(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

}  // namespace simcuda_runtime
