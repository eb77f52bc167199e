// How the substitute runtime reaches the driver: through cuGetProcAddress alone, by the 440 look-ups that NVIDIA's
// runtime 13.0 makes when it starts, in their order [measured: ../driver-lookups.txt]. A function that is not among
// them cannot be named here: that fails to compile.
#pragma once
#include <cuda.h>
#include <cudaProfilerTypedefs.h>
#include <cudaTypedefs.h>
#include <driver_types.h>
#include <stddef.h>

#include "driver_lookups.inc"

struct simcuda_kernel;

namespace simcuda_runtime {

enum : unsigned { kAnyStream = 0, kPerThreadStream = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM };

constexpr bool same_text(const char* left, const char* right) {
  while (*left && *left == *right) ++left, ++right;
  return *left == *right;
}

void no_such_lookup();  // never defined: reached only while compiling

consteval size_t lookup_index(const char* name, int version, unsigned flags) {
  for (size_t index = 0; index < sizeof(kLookups) / sizeof(kLookups[0]); ++index)
    if (kLookups[index].version == version && kLookups[index].flags == flags && same_text(kLookups[index].name, name))
      return index;
  no_such_lookup();
  return 0;
}

// Opens the driver and makes the look-ups at the first call; cudaErrorInsufficientDriver without one [documented].
cudaError_t open_driver();

// What the look-up returned; null where the driver has no such function.
void* driver_function(size_t index);

// The simulated driver's own extension; null with another driver.
const simcuda_kernel* find_kernel_by_stub(const void* stub);

// A driver function that may be missing: then calls answer as NVIDIA's runtime does on an old driver [documented].
template <class Function>
struct DriverCall {
  Function function;
  template <class... Arguments>
  CUresult operator()(Arguments... arguments) const {
    if (!function) return static_cast<CUresult>(cudaErrorCallRequiresNewerDriver);
    return function(arguments...);
  }
};

template <class Function>
DriverCall<Function> driver_call(size_t index) {
  return {reinterpret_cast<Function>(driver_function(index))};
}

}  // namespace simcuda_runtime

// DRIVER(cuMemAlloc, 3020)(&address, bytes). DRIVER_AS: for rows whose header keeps the type of another version only.
// Each macro is complete in itself: cuda.h renames these names, which passing them on to another macro would apply.
#define DRIVER(name, version)                              \
  ::simcuda_runtime::driver_call<PFN_##name##_v##version>( \
      ::simcuda_runtime::lookup_index(#name, version, ::simcuda_runtime::kAnyStream))
#define DRIVER_AS(type_version, name, version)                  \
  ::simcuda_runtime::driver_call<PFN_##name##_v##type_version>( \
      ::simcuda_runtime::lookup_index(#name, version, ::simcuda_runtime::kAnyStream))
