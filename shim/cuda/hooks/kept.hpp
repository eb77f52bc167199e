// A device block that the program gave back and the pool keeps is no memory: a copy, memset, prefetch or advice that
// names it gets what a driver answers for an address that nobody allocated, and a line says where the block was freed
// and where it was used. Launches are not looked at: a word among their arguments may only look like an address.
#pragma once
#include "shim/cuda/state.hpp"

namespace cistern::cuda {

// The kept block that contains the address; null: none. A copy begins at the start of a live block nearly always, and
// that is one look without a lock.
inline const Block* kept_block(CudaState& s, CUdeviceptr address) {
  const Block* block = s.blocks.table.find(address);
  if (block && block->state.load(std::memory_order_acquire) == BlockState::live) [[likely]]
    return nullptr;
  if (!block) block = s.blocks.containing(address);
  const bool kept = block && block->kind == BlockKind::device && block->context_is_there() &&
                    block->state.load(std::memory_order_acquire) == BlockState::cached;
  return kept ? block : nullptr;
}

// Whether a call that uses the kept block is refused with kInvalidValue, which is said once for each place that does
// so. No: there is no context, or it is broken, and the driver refuses for that reason whatever the address.
bool refuses_kept(CudaState& s, const Block& kept, CUdeviceptr address, const char* driver_name);

inline bool refuses(CudaState& s, const char* driver_name, CUdeviceptr first, std::uint64_t bytes) {
  const Block* const kept = bytes ? kept_block(s, first) : nullptr;
  return kept && refuses_kept(s, *kept, first, driver_name);
}
inline bool refuses(CudaState& s, const char* driver_name, const CUdeviceptr* firsts, const std::size_t* bytes,
                    std::size_t count) {
  for (std::size_t i = 0; firsts && bytes && i < count; ++i)
    if (refuses(s, driver_name, firsts[i], bytes[i])) return true;
  return false;
}

}  // namespace cistern::cuda
