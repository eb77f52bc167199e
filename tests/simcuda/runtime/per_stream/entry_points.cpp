// Driver functions handed to the program: the query is passed on with the version and the kind of default stream.
#include "per_stream.hpp"

using namespace simcuda_runtime;

namespace {

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
constexpr cuuint64_t kDefaultFlags = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
#else
constexpr cuuint64_t kDefaultFlags = CU_GET_PROC_ADDRESS_DEFAULT;
#endif

// The status is the driver's own [documented: the values of both families are the same]; a function that is missing is
// no error of the call when a status was asked for [assumed: as cuGetProcAddress_v2 has it].
cudaError_t find(const char* name, void** function, unsigned version, unsigned long long flags,
                 cudaDriverEntryPointQueryResult* status) {
  if (!name || !function) return record(cudaErrorInvalidValue);
  return with_driver([&] {
    cuuint64_t driver_flags = flags == cudaEnableDefault ? kDefaultFlags : flags;
    return DRIVER(cuGetProcAddress, 12000)(name, function, static_cast<int>(version), driver_flags,
                                           reinterpret_cast<CUdriverProcAddressQueryResult*>(status));
  });
}

}  // namespace

extern "C" {

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned int version,
                                             unsigned long long flags, cudaDriverEntryPointQueryResult* status) {
  return find(name, function, version, flags, status);
}

// Gone from the header of 13.0, still exported [measured].
cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* status) {
  return find(name, function, SIMCUDA_RUNTIME_VERSION, flags, status);
}

}  // extern "C"
