// Opening libcuda.so.1 and the 440 look-ups.
#include "driver.hpp"

#include <dlfcn.h>
#include <pthread.h>

namespace simcuda_runtime {
namespace {

constexpr size_t kLookupCount = sizeof(kLookups) / sizeof(kLookups[0]);
using FindKernel = const simcuda_kernel* (*)(const void* stub);

void* functions[kLookupCount];
FindKernel find_kernel;
cudaError_t opened = cudaErrorInsufficientDriver;

// The query is asked for through itself, twice, and the pointers that it gives serve the rest [measured]: the one of
// 11030 has no place for a status, the one of 12000 has.
void look_everything_up(PFN_cuGetProcAddress_v12000 query) {
  constexpr size_t kWithoutStatus = lookup_index("cuGetProcAddress", 11030, kAnyStream);
  constexpr size_t kWithStatus = lookup_index("cuGetProcAddress", 12000, kAnyStream);
  static_assert(kWithoutStatus + 1 == kWithStatus);
  for (size_t index = 0; index < kLookupCount; ++index) {
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    void* found = nullptr;
    if (query(kLookups[index].name, &found, kLookups[index].version, kLookups[index].flags, &status) != CUDA_SUCCESS)
      continue;
    functions[index] = found;
    if (index == kWithStatus && found) query = reinterpret_cast<PFN_cuGetProcAddress_v12000>(found);
  }
}

void open_once() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);  // the one dlopen and the one dlsym of NVIDIA's runtime [measured]
  if (!library) return;
  auto query = reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(library, "cuGetProcAddress_v2"));
  if (!query) return;
  look_everything_up(query);
  find_kernel = reinterpret_cast<FindKernel>(dlsym(library, "simcuda_find_kernel_by_stub"));
  opened = cudaSuccess;
}

}  // namespace

cudaError_t open_driver() {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, open_once);
  return opened;
}

void* driver_function(size_t index) { return functions[index]; }

const simcuda_kernel* find_kernel_by_stub(const void* stub) { return find_kernel ? find_kernel(stub) : nullptr; }

}  // namespace simcuda_runtime
