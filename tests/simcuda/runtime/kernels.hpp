// Kernels. A program knows a kernel by its stub, a host address. The simulated driver knows which host function does
// the kernel's work (../simcuda.h) and gives it out by name, as a function of a loaded module; so each kernel passes
// through the calls that a real one passes through.
#pragma once
#include <cuda.h>
#include <driver_types.h>

namespace simcuda_runtime {

// The driver's function for a stub in the current context, loaded at the first need; cudaErrorInvalidDeviceFunction for
// a stub that nobody defined.
cudaError_t function_of(const void* stub, CUfunction* function);

// Makes function_of load this kernel anew.
void forget_function(const void* stub);

// The name that nvcc's registration gave to a stub.
void register_kernel_name(const void* stub, const char* name);
const char* kernel_name(const void* stub);  // null: unknown

// A context may have been destroyed and another made at its address: then the function that we kept is stale, and is
// loaded anew once.
template <class Work>
CUresult with_function(const void* stub, Work work) {
  CUfunction function = nullptr;
  if (cudaError_t error = function_of(stub, &function)) return static_cast<CUresult>(error);
  CUresult result = work(function);
  if (result != CUDA_ERROR_INVALID_HANDLE) return result;
  forget_function(stub);
  if (cudaError_t error = function_of(stub, &function)) return static_cast<CUresult>(error);
  return work(function);
}

}  // namespace simcuda_runtime
