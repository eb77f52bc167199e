// The calls of the C interface that are CUDA's by name (cistern/cistern.h, cistern/plugins.h), but for those of a
// device (devices.cpp). Thin: each to the function that its hook calls too.
#include "shim/cuda/device_memory.hpp"
#include "shim/cuda/hooks/substitute.hpp"
#include "shim/cuda/next.hpp"
#include "shim/library/library.hpp"
#include "shim/library/pools.hpp"
#include "stats/sites.hpp"

namespace cistern::library {

int cuda_allocate(unsigned long long* pointer, size_t bytes) {
  const CalledFrom here(__builtin_return_address(0), Calls::some);
  return cuda::driver_found() ? cuda::allocate_device(pointer, bytes) : cuda::kNoDevice;
}

int cuda_deallocate(unsigned long long pointer) {
  const CalledFrom here(__builtin_return_address(0), Calls::some);
  if (refuse_block_of_pool("cistern_cuda_deallocate", reinterpret_cast<void*>(pointer))) return cuda::kInvalidValue;
  return cuda::driver_found() ? cuda::free_device(pointer) : cuda::kNoDevice;
}

uint64_t driver_lookups(uint64_t* substituted) {
  const cuda::LookUps look_ups = cuda::look_ups();
  if (substituted) *substituted = look_ups.substituted;
  return look_ups.answered;
}

cistern_status block_used_on(void* block, void* stream) {
  const auto pointer = static_cast<cuda::CUdeviceptr>(reinterpret_cast<std::uintptr_t>(block));
  if (!cuda::driver_found()) return CISTERN_NO_DRIVER;
  return cuda::note_further_stream(pointer, static_cast<cuda::CUstream>(stream)) ? CISTERN_OK : CISTERN_INVALID;
}

}  // namespace cistern::library
