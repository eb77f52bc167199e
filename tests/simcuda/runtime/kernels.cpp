// Loading kernels and remembering them; what is asked about them.
#include "kernels.hpp"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "../simcuda.h"
#include "state.hpp"

namespace simcuda_runtime {
namespace {

struct Name {
  const void* stub;
  const char* name;
  Name* next;
};

// Valid while its context lives and no device was reset.
struct Loaded {
  const void* stub;
  CUcontext context;
  unsigned long long reset_count;
  CUfunction function;
  Loaded* next;
};

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
Name* names = nullptr;
Loaded* loaded = nullptr;

struct Locked {
  Locked() { pthread_mutex_lock(&mutex); }
  ~Locked() { pthread_mutex_unlock(&mutex); }
};

CUfunction find_loaded(const void* stub, CUcontext context) {
  Locked locked;
  for (Loaded* entry = loaded; entry; entry = entry->next)
    if (entry->stub == stub && entry->context == context && entry->reset_count == reset_count()) return entry->function;
  return nullptr;
}

void keep_loaded(const void* stub, CUcontext context, CUfunction function) {
  auto* entry = static_cast<Loaded*>(malloc(sizeof(Loaded)));
  if (!entry) return;
  Locked locked;
  *entry = {stub, context, reset_count(), function, loaded};
  loaded = entry;
}

// The simulated driver does not read the image. Loading lazily must not end a capture under way, so it happens in the
// relaxed mode [assumed: NVIDIA's runtime loads lazily and its captures survive a first launch].
CUresult load(const char* name, CUfunction* function) {
  static const char kImage[] = "simcuda: kernels are host functions";
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  if (CUresult result = DRIVER(cuThreadExchangeStreamCaptureMode, 10010)(&mode)) return result;
  CUmodule module = nullptr;
  CUresult result = DRIVER(cuModuleLoadData, 2000)(&module, kImage);
  if (result == CUDA_SUCCESS) result = DRIVER(cuModuleGetFunction, 2000)(function, module, name);
  CUresult restored = DRIVER(cuThreadExchangeStreamCaptureMode, 10010)(&mode);
  return result != CUDA_SUCCESS ? result : restored;
}

}  // namespace

void register_kernel_name(const void* stub, const char* name) {
  auto* entry = static_cast<Name*>(malloc(sizeof(Name)));
  if (!entry) return;
  Locked locked;
  *entry = {stub, name, names};
  names = entry;
}

const char* kernel_name(const void* stub) {
  if (const simcuda_kernel* kernel = find_kernel_by_stub(stub)) return kernel->name;
  Locked locked;
  for (Name* entry = names; entry; entry = entry->next)
    if (entry->stub == stub) return entry->name;
  return nullptr;
}

cudaError_t function_of(const void* stub, CUfunction* function) {
  CUcontext context = nullptr;
  if (CUresult result = DRIVER(cuCtxGetCurrent, 4000)(&context)) return to_runtime(result);
  *function = find_loaded(stub, context);
  if (*function) return cudaSuccess;
  const char* name = kernel_name(stub);
  CUresult result = name ? load(name, function) : CUDA_ERROR_NOT_FOUND;
  if (result == CUDA_ERROR_NOT_FOUND) {
    fprintf(stderr, "simcuda: kernel %s has no host function: see simcuda_define_kernel\n", name ? name : "(unnamed)");
    return cudaErrorInvalidDeviceFunction;
  }
  if (result == CUDA_SUCCESS) keep_loaded(stub, context, *function);
  return to_runtime(result);
}

void forget_function(const void* stub) {
  Locked locked;
  for (Loaded* entry = loaded; entry; entry = entry->next)
    if (entry->stub == stub) entry->stub = nullptr;
}

}  // namespace simcuda_runtime

using namespace simcuda_runtime;

extern "C" {

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* stub) {
  if (!attributes) return record(cudaErrorInvalidValue);
  return in_context([&] {
    return with_function(stub, [&](CUfunction function) {
      *attributes = {};
      auto ask = [&](CUfunction_attribute name) {
        int value = 0;
        return DRIVER(cuFuncGetAttribute, 2020)(&value, name, function) == CUDA_SUCCESS ? value : 0;
      };
      attributes->sharedSizeBytes = static_cast<size_t>(ask(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES));
      attributes->constSizeBytes = static_cast<size_t>(ask(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES));
      attributes->localSizeBytes = static_cast<size_t>(ask(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES));
      attributes->maxThreadsPerBlock = ask(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
      attributes->numRegs = ask(CU_FUNC_ATTRIBUTE_NUM_REGS);
      attributes->ptxVersion = ask(CU_FUNC_ATTRIBUTE_PTX_VERSION);
      attributes->binaryVersion = ask(CU_FUNC_ATTRIBUTE_BINARY_VERSION);
      attributes->maxDynamicSharedSizeBytes = ask(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
      return CUDA_SUCCESS;
    });
  });
}

// The attributes that can be set have the same values in both families [documented].
cudaError_t cudaFuncSetAttribute(const void* stub, cudaFuncAttribute attribute, int value) {
  return in_context([&] {
    return with_function(stub, [&](CUfunction function) {
      return DRIVER(cuFuncSetAttribute, 9000)(function, static_cast<CUfunction_attribute>(attribute), value);
    });
  });
}

cudaError_t cudaFuncSetCacheConfig(const void* stub, cudaFuncCache config) {
  return in_context([&] {
    return with_function(stub, [&](CUfunction function) {
      return DRIVER(cuFuncSetCacheConfig, 3000)(function, static_cast<CUfunc_cache>(config));
    });
  });
}

cudaError_t cudaFuncGetName(const char** name, const void* stub) {
  if (!name) return record(cudaErrorInvalidValue);
  return with_driver([&] {
    *name = kernel_name(stub);
    return *name ? cudaSuccess : cudaErrorInvalidDeviceFunction;
  });
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t* function, const void* stub) {
  if (!function) return record(cudaErrorInvalidValue);
  return in_context([&] { return function_of(stub, function); });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* stub, int block_size,
                                                                   size_t dynamic_bytes, unsigned int flags) {
  return in_context([&] {
    return with_function(stub, [&](CUfunction function) {
      return DRIVER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000)(blocks, function, block_size,
                                                                                dynamic_bytes, flags);
    });
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* stub, int block_size,
                                                          size_t dynamic_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, stub, block_size, dynamic_bytes, 0);
}

}  // extern "C"
