// The reasons why the pools do not serve a request or a free, so that the program's own call goes to the driver.
#pragma once
#include <optional>

#include "shim/cuda/state.hpp"
#include "shim/process/process.hpp"

namespace cistern::cuda {

constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 46;

inline std::optional<Unpooled> why_size_not_pooled(const CudaState& s, BlockKind kind, std::uint64_t bytes) {
  const Options& chosen = options();
  if (kind == BlockKind::device) {
    if (!s.pools.keep_device_memory()) return Unpooled::pool_off;
    if (bytes < chosen.device_object_min) return Unpooled::too_small;
    if (bytes > chosen.device_object_max || bytes > kBytesMax) return Unpooled::too_large;
    return {};
  }
  if (!chosen.pinned_pool) return Unpooled::pool_off;
  if (bytes > chosen.pinned_object_max || bytes > kBytesMax) return Unpooled::too_large;
  return {};
}

// Allocations and frees ask this first. If a capture forbids the call, the call goes to the driver, which invalidates
// the capture as it would without Cistern.
inline std::optional<Unpooled> why_not_pooled(CudaState& s, BlockKind kind, std::uint64_t bytes,
                                              const Context* current) {
  if (s.missing.for_pools) return Unpooled::missing_function;
  if (!current) return Unpooled::no_context;
  if (phase() != Phase::running) return Unpooled::exiting;
  if (current->poisoned.load(std::memory_order_relaxed)) return Unpooled::context_poisoned;
  if (s.captures.forbid_unsafe_calls()) return Unpooled::capturing;
  return why_size_not_pooled(s, kind, bytes);
}

// A block in state `cached` becomes the program's (allocate.cpp).
void hand_out_part(CudaState& s, Block* block, std::uint64_t bytes, const char* api, bool hit);

// Waits for all work of the context, whichever context is current (free.cpp). While a stream captures it does not wait,
// and answers kNotReady. The caller counts the wait.
CUresult synchronise(CudaState& s, Context* context, const Context* current);
// In deferred order the program may run far ahead of the device. Freed blocks that wait for its work are to have no
// more bytes than were live lately. `waiting_elsewhere`: bytes that wait in the block's range or segments.
bool too_much_waits(CudaState& s, const Block& freed, std::uint64_t waiting_elsewhere);
// A block is freed for which no call may wait: events in the streams tell when the work has ended (free.cpp).
void use_markers(CudaState& s, const Block& block, CUstream stream);

}  // namespace cistern::cuda
