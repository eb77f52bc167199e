// The calls of the C interface that are CUDA's by name (cistern/cistern.h, cistern/plugins.h), but for those of a
// device (devices.cpp). Thin: each to the function that its hook calls too.
#include "shim/cuda/device_memory.hpp"
#include "shim/cuda/hooks/substitute.hpp"
#include "shim/cuda/library/answers.hpp"
#include "shim/cuda/library/devices.hpp"
#include "shim/cuda/next.hpp"
#include "shim/library/library.hpp"
#include "shim/library/pool_blocks.hpp"
#include "shim/library/pools.hpp"
#include "stats/sites.hpp"

namespace cistern::library {

namespace {

// The driver refuses what the program gave: a size, or an address.
cistern_status status_of_call(cuda::CUresult answer) {
  return answer == cuda::kInvalidValue ? refused(answer, CISTERN_INVALID) : cuda::status_of(answer);
}

}  // namespace

cistern_status cuda_allocate(size_t bytes, unsigned long long* pointer) {
  const CalledFrom here(__builtin_return_address(0), Calls::occasional);
  native = 0;
  if (!pointer) return CISTERN_INVALID;
  *pointer = 0;
  cuda::Context* context = nullptr;
  cuda::CUresult answer = cuda::find_context(CISTERN_CURRENT, &context);
  if (answer == cuda::kSuccess) answer = cuda::allocate_device(*context, pointer, bytes);
  if (answer != cuda::kSuccess) *pointer = 0;
  forget_stale_block(*pointer);
  return status_of_call(answer);
}

cistern_status cuda_deallocate(unsigned long long pointer) {
  const CalledFrom here(__builtin_return_address(0), Calls::occasional);
  native = 0;
  if (refuse_block_of_pool("cistern_cuda_deallocate", reinterpret_cast<void*>(pointer))) return CISTERN_INVALID;
  if (!cuda::driver_found()) return CISTERN_NO_DRIVER;
  if (cuda::is_device_block(pointer)) return status_of_call(cuda::free_device_now(pointer));
  const cuda::OnDevice there(CISTERN_CURRENT);
  return status_of_call(cuda::free_device(pointer));
}

uint64_t driver_lookups(uint64_t* substituted) {
  const cuda::LookUps look_ups = cuda::look_ups();
  if (substituted) *substituted = look_ups.substituted;
  return look_ups.answered;
}

cistern_status block_used_on(void* block, void* stream) {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  native = 0;
  if (!cuda::driver_found()) return CISTERN_NO_DRIVER;
  // A block with an alignment of its own lies behind the beginning of its memory.
  const SeenBlock seen = see_block(address);
  const cuda::CUdeviceptr pointer = seen.account ? seen.record->base : address;
  return cuda::note_further_stream(pointer, static_cast<cuda::CUstream>(stream)) ? CISTERN_OK : CISTERN_INVALID;
}

}  // namespace cistern::library
