// Linked to NVIDIA's own static runtime, on the simulated driver. That runtime asks the driver for all its functions
// and then for a private answer that only NVIDIA's driver has, so it fails to initialise: what is shown is its
// look-ups.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>

#include <cistern/cistern.h>
#include "tests/simcuda/simcuda.h"

int main() {
  void* device = nullptr;
  const cudaError_t allocated = cudaMalloc(&device, 4096);
  printf("cudaMalloc: %d %s\n", allocated, cudaGetErrorName(allocated));
  const cudaError_t last = cudaGetLastError();
  printf("last error: %d, then %d\n", last, cudaGetLastError());
  int count = -1;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  printf("cudaGetDeviceCount: %d\n", counted);
  printf("cudaFree(0): %d\n", cudaFree(nullptr));
  printf("look-ups: %lld\n", simcuda_value("calls:cuGetProcAddress_v2"));
  printf("allocations: %lld\n", simcuda_value("allocs"));
  // Those that went through the shim; it has this function where it is preloaded.
  decltype(&cistern_driver_lookups) through_the_shim = nullptr;
  *reinterpret_cast<void**>(&through_the_shim) = dlsym(RTLD_DEFAULT, "cistern_driver_lookups");
  if (through_the_shim) {
    uint64_t substituted = 0;
    const uint64_t answered = through_the_shim(&substituted);
    fprintf(stderr, "through the shim: %" PRIu64 "\nsubstituted: %" PRIu64 "\n", answered, substituted);
  }
  return 0;
}
