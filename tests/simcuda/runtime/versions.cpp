// Versions. SIMCUDA_RUNTIME_VERSION is what tells the two shared runtimes apart.
#include "state.hpp"

using namespace simcuda_runtime;

extern "C" {

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (!version) return record(cudaErrorInvalidValue);
  *version = SIMCUDA_RUNTIME_VERSION;
  return cudaSuccess;
}

// 0 and success without a driver [documented].
cudaError_t cudaDriverGetVersion(int* version) {
  if (!version) return record(cudaErrorInvalidValue);
  *version = 0;
  if (open_driver() != cudaSuccess) return cudaSuccess;
  return record(to_runtime(DRIVER(cuDriverGetVersion, 2020)(version)));
}

}  // extern "C"
