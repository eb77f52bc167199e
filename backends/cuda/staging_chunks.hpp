// Chunks of a context's staging ring: pinned memory, out of the pool where that keeps any of the size, each with an
// event as its mark. To be called where the context is current and calls of our own may be made.
#pragma once
#include "backends/cuda/block_source.hpp"
#include "pool/staging/ring.hpp"
#include "pool/tiered_pool.hpp"

namespace cistern::cuda {

class StagingChunks final : public staging::ChunkMaker {
 public:
  StagingChunks(const Functions& real, BlockSource& source, TieredPool<BlockSource>& pool, Context& context,
                std::uint64_t now_ns)
      : real_(real), source_(source), pool_(pool), context_(context), now_ns_(now_ns) {}

  bool make(staging::Chunk& chunk) override;
  void unmake(staging::Chunk& chunk, bool passed) override;
  Passed passed(const staging::Chunk& chunk) override;

 private:
  Block* block();

  const Functions& real_;
  BlockSource& source_;
  TieredPool<BlockSource>& pool_;
  Context& context_;
  const std::uint64_t now_ns_;  // when the object was made
};

}  // namespace cistern::cuda
