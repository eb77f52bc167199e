// See staging_chunks.hpp.
#include "backends/cuda/staging_chunks.hpp"

namespace cistern::cuda {
namespace {
constexpr std::uint64_t kPlainPinned = 0;  // cuMemHostAlloc without flags
}  // namespace

Block* StagingChunks::block() {
  const PoolKey key{reinterpret_cast<std::uintptr_t>(&context_), kPlainPinned, staging::kChunkBytes};
  while (const std::optional<Block*> kept = pool_.take(key, now_ns_)) {
    if ((*kept)->context_is_there()) return *kept;
    source_.forget(*kept);
  }
  const auto acquired = source_.acquire({&context_, kPlainPinned, staging::kChunkBytes});
  return acquired.ok ? acquired.chunk : nullptr;
}

bool StagingChunks::make(staging::Chunk& chunk) {
  CUevent event = nullptr;
  context_.device->calls.queries.fetch_add(1, std::memory_order_relaxed);
  if (real_.event_create(&event, kEventDisableTiming) != kSuccess) return false;
  source_.ring_bytes.fetch_add(staging::kChunkBytes, std::memory_order_relaxed);  // before it counts as reserved
  Block* const memory = block();
  if (!memory) {
    source_.ring_bytes.fetch_sub(staging::kChunkBytes, std::memory_order_relaxed);
    real_.event_destroy(event);
    return false;
  }
  memory->in_ring.store(true, std::memory_order_relaxed);
  chunk.memory = reinterpret_cast<char*>(memory->address.load(std::memory_order_relaxed));
  chunk.block = memory;
  chunk.event = event;
  return true;
}

// An event may be destroyed before it has passed. The memory goes back to the driver: to the pool it would be memory
// that the program never asked for.
void StagingChunks::unmake(staging::Chunk& chunk, bool passed) {
  real_.event_destroy(static_cast<CUevent>(chunk.event));
  auto* const block = static_cast<Block*>(chunk.block);
  passed ? source_.release(block) : source_.release_unsettled(block);
  source_.ring_bytes.fetch_sub(staging::kChunkBytes, std::memory_order_relaxed);
}

staging::ChunkMaker::Passed StagingChunks::passed(const staging::Chunk& chunk) {
  context_.device->calls.queries.fetch_add(1, std::memory_order_relaxed);
  const CUresult answer = real_.event_query(static_cast<CUevent>(chunk.event));
  return answer == kSuccess ? Passed::yes : answer == kNotReady ? Passed::no : Passed::failed;
}

}  // namespace cistern::cuda
