// Launching kernels. What a kernel is here: ../kernels.hpp.
#include "../kernels.hpp"
#include "per_stream.hpp"

using namespace simcuda_runtime;

namespace {

cudaError_t launch(const void* stub, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                   cudaStream_t stream) {
  return in_context([&] {
    return with_function(stub, [&](CUfunction function) {
      return DRIVER_ON_STREAM(cuLaunchKernel, 4000, 7000)(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                                          static_cast<unsigned>(shared_bytes), stream, arguments,
                                                          nullptr);
    });
  });
}

}  // namespace

extern "C" {

cudaError_t cudaLaunchKernel(const void* stub, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                             cudaStream_t stream) {
  return launch(stub, grid, block, arguments, shared_bytes, stream);
}

// What nvcc's host stubs call since 13.0, with what __cudaGetKernel gave them [measured: crt/host_runtime.h].
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define LAUNCH_FROM_STUB __cudaLaunchKernel_ptsz
#else
#define LAUNCH_FROM_STUB __cudaLaunchKernel
#endif
cudaError_t LAUNCH_FROM_STUB(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                             cudaStream_t stream) {
  return launch(kernel, grid, block, arguments, shared_bytes, stream);
}

// The simulator runs a kernel's blocks at once, so that a cooperative launch is an ordinary one.
cudaError_t cudaLaunchCooperativeKernel(const void* stub, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                                        cudaStream_t stream) {
  return in_context([&] {
    return with_function(stub, [&](CUfunction function) {
      return DRIVER_ON_STREAM(cuLaunchCooperativeKernel, 9000, 9000)(function, grid.x, grid.y, grid.z, block.x, block.y,
                                                                     block.z, static_cast<unsigned>(shared_bytes),
                                                                     stream, arguments);
    });
  });
}

// Launch attributes of both families have the same layout [documented: they are named as twins].
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* configuration, const void* stub, void** arguments) {
  static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute));
  if (!configuration) return record(cudaErrorInvalidValue);
  const dim3 &grid = configuration->gridDim, &block = configuration->blockDim;
  CUlaunchConfig driver_configuration{};
  driver_configuration.gridDimX = grid.x, driver_configuration.gridDimY = grid.y,
  driver_configuration.gridDimZ = grid.z;
  driver_configuration.blockDimX = block.x, driver_configuration.blockDimY = block.y;
  driver_configuration.blockDimZ = block.z;
  driver_configuration.sharedMemBytes = static_cast<unsigned>(configuration->dynamicSmemBytes);
  driver_configuration.hStream = configuration->stream;
  driver_configuration.attrs = reinterpret_cast<CUlaunchAttribute*>(configuration->attrs);
  driver_configuration.numAttrs = configuration->numAttrs;
  return in_context([&] {
    return with_function(stub, [&](CUfunction function) {
      return DRIVER_ON_STREAM(cuLaunchKernelEx, 11060, 11060)(&driver_configuration, function, arguments, nullptr);
    });
  });
}

}  // extern "C"
