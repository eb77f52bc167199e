// Start and end of the runtime, contexts and the last error.
#include "state.hpp"

#include <pthread.h>
#include <stdlib.h>

#include <atomic>

namespace simcuda_runtime {
namespace {

constexpr int kDevicesMax = 64;

std::atomic<bool> unloaded{false};
std::atomic<bool> initialised{false};
std::atomic<unsigned long long> resets{0};
pthread_mutex_t primaries_mutex = PTHREAD_MUTEX_INITIALIZER;
std::atomic<CUcontext> primaries[kDevicesMax];  // null: not retained, or reset since

thread_local int selected_device = 0;      // a new thread starts on device 0 [documented]
thread_local CUcontext entered = nullptr;  // the primary context that this thread made current last
thread_local cudaError_t last = cudaSuccess;

// The end as NVIDIA's runtime has it: whatever runs after it gets cudaErrorCudartUnloading [documented], from the
// runtime itself. It ends in an exit handler of its own, so before handlers that are older than its first call, and
// before destructors of the program [measured: 13.0 on an H100]. A runtime that never started ends with its destructor.
[[gnu::destructor]] void unload() { unloaded = true; }

// Errors after which the context cannot be used [documented at each], nor the device by this process [measured].
bool is_sticky(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
      return true;
    default:
      return false;
  }
}

// Forgets the primary context when somebody else has reset it; true also when another thread has restarted it since.
bool forget_if_reset(CUcontext context) {
  if (!context) return false;
  for (int device = 0; device < kDevicesMax; ++device) {
    if (primaries[device].load() != context) continue;
    unsigned flags = 0;
    int active = 1;
    if (DRIVER(cuDevicePrimaryCtxGetState, 7000)(device, &flags, &active) != CUDA_SUCCESS) return false;
    if (!active) {
      primaries[device] = nullptr;
      ++resets;
    }
    return true;
  }
  return false;
}

bool is_retained(CUcontext context) {
  for (const auto& primary : primaries)
    if (primary.load() == context) return true;
  return false;
}

}  // namespace

cudaError_t record(cudaError_t error) {
  if (error != cudaSuccess) last = error;
  return error;
}

cudaError_t last_error() { return last; }

// A sticky error is taken like any other; the next call that asks the driver brings it again [measured].
cudaError_t take_last_error() {
  const cudaError_t error = last;
  last = cudaSuccess;
  return error;
}

cudaError_t start_driver() {
  if (unloaded.load(std::memory_order_relaxed)) return cudaErrorCudartUnloading;
  if (initialised.load(std::memory_order_acquire)) return cudaSuccess;
  if (cudaError_t error = open_driver()) return error;
  // A failed cuInit is tried again at the next call [assumed].
  if (CUresult result = DRIVER(cuInit, 2000)(0)) return to_runtime(result);
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, [] { atexit(unload); });  // after cuInit, so that the driver outlives the runtime
  initialised.store(true, std::memory_order_release);
  return cudaSuccess;
}

// A primary context that a reset made inactive may still be current in other threads: they start it again [assumed].
cudaError_t enter_context() {
  if (cudaError_t error = start_driver()) return error;
  CUcontext current = nullptr;
  if (CUresult result = DRIVER(cuCtxGetCurrent, 4000)(&current)) return to_runtime(result);
  if (current && (current != entered || is_retained(current))) return cudaSuccess;
  return select_device(selected_device);
}

bool context_was_reset(cudaError_t error) {
  if (error != cudaErrorContextIsDestroyed && error != cudaErrorDeviceUninitialized) return false;
  CUcontext current = nullptr;
  if (DRIVER(cuCtxGetCurrent, 4000)(&current) != CUDA_SUCCESS) return false;
  return forget_if_reset(current ? current : primaries[selected_device].load());
}

cudaError_t device_count(int* count) { return to_runtime(DRIVER(cuDeviceGetCount, 2000)(count)); }

cudaError_t primary_context(int device, CUcontext* context) {
  int count = 0;
  if (cudaError_t error = device_count(&count)) return error;
  if (device < 0 || device >= count || device >= kDevicesMax) return cudaErrorInvalidDevice;
  *context = primaries[device].load();
  if (*context) return cudaSuccess;
  pthread_mutex_lock(&primaries_mutex);
  CUresult result = CUDA_SUCCESS;
  *context = primaries[device].load();
  if (!*context) {
    result = DRIVER(cuDevicePrimaryCtxRetain, 7000)(context, device);
    if (result == CUDA_SUCCESS) primaries[device] = *context;
  }
  pthread_mutex_unlock(&primaries_mutex);
  // A device that a fault has lost cannot be started again [measured: 46].
  return is_sticky(to_runtime(result)) ? cudaErrorDevicesUnavailable : to_runtime(result);
}

cudaError_t select_device(int device) {
  CUcontext context = nullptr;
  if (cudaError_t error = primary_context(device, &context)) return error;
  if (CUresult result = DRIVER(cuCtxSetCurrent, 4000)(context)) return to_runtime(result);
  selected_device = device;
  entered = context;
  return cudaSuccess;
}

cudaError_t current_device(int* device) {
  CUcontext current = nullptr;
  *device = selected_device;
  if (CUresult result = DRIVER(cuCtxGetCurrent, 4000)(&current)) return to_runtime(result);
  if (!current || current == entered) return cudaSuccess;
  return to_runtime(DRIVER(cuCtxGetDevice, 2000)(device));
}

cudaError_t reset_device(int device) {
  if (CUresult result = DRIVER_AS(11000, cuDevicePrimaryCtxReset, 7000)(device)) return to_runtime(result);
  if (device < kDevicesMax) primaries[device] = nullptr;
  ++resets;
  return cudaSuccess;
}

// For refused.cpp, which cannot include the public headers.
int record_refusal(int error) {
  static_assert(cudaErrorNotSupported == 801);
  return record(static_cast<cudaError_t>(error));
}

unsigned long long reset_count() { return resets.load(std::memory_order_relaxed); }

}  // namespace simcuda_runtime
