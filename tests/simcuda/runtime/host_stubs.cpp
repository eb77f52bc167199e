// What the host code that nvcc makes calls by itself: registration at start, and the launch of kernel<<<...>>>
// [measured: crt/host_runtime.h and the kept files of nvcc 13.0]. Device code is never looked at.
#include <stdio.h>
#include <stdlib.h>

#include "kernels.hpp"
#include "state.hpp"

using namespace simcuda_runtime;

namespace {

struct LaunchConfiguration {
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
};

// A launch's arguments may launch in turn while they are evaluated, so configurations nest.
constexpr int kNestedMax = 16;
thread_local LaunchConfiguration configurations[kNestedMax];
thread_local int configuration_count = 0;

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void* image) {
  auto** handle = static_cast<void**>(malloc(sizeof(void*)));
  if (handle) *handle = image;
  return handle;
}

void __cudaRegisterFatBinaryEnd(void**) {}

// Frees run by static destructors may come later, so the runtime itself stays.
void __cudaUnregisterFatBinary(void** handle) { free(handle); }

char __cudaInitModule(void**) { return 1; }

void __cudaRegisterFunction(void**, const char* stub, char*, const char* device_name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  register_kernel_name(stub, device_name);
}

// Device variables can be declared; copying to and from them is refused by name.
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterHostVar(void**, const char*, char*, size_t) {}

void __cudaRegisterManagedVar(void**, void**, char*, const char* name, int, size_t, int, int) {
  fprintf(stderr, "simcuda: the managed variable %s is not simulated\n", name);
}

// 0: the configuration is kept [documented in the header by use: a launch is skipped otherwise].
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, CUstream_st* stream) {
  if (configuration_count == kNestedMax) return 1;
  configurations[configuration_count++] = {grid, block, shared_bytes, stream};
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
  if (configuration_count == 0) return record(cudaErrorMissingConfiguration);
  const LaunchConfiguration& configuration = configurations[--configuration_count];
  *grid = configuration.grid;
  *block = configuration.block;
  *shared_bytes = configuration.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = configuration.stream;
  return cudaSuccess;
}

// The handle of a kernel is opaque to programs; here it is the stub again, which both kinds of launch accept.
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  if (!kernel) return record(cudaErrorInvalidValue);
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(stub));
  return cudaSuccess;
}

cudaError_t cudaGetKernel(cudaKernel_t* kernel, const void* stub) { return __cudaGetKernel(kernel, stub); }

}  // extern "C"
