// Blocks with call sites.
//
// Samples are drawn by bytes: on average one every `interval_bytes`, at exponentially distributed distances, so every
// byte that is handed out is as likely to be the drawn one. A class's list is cut where the next sample is due
// (host_heap.cpp); the block after it comes from a page that holds sampled blocks only, so that freeing others costs
// nothing. Such a page has a side table: per block the site, the size that was asked for, and when. Large blocks keep
// theirs in their descriptor. An interval of 1 samples every block.
//
// These pages belong to no thread; their locks are spread over the threads.
#pragma once
#include "pool/host_layout.hpp"

namespace cistern::host_pool {

struct SamplePolicy {
  std::uint64_t interval_bytes;
  // Interns the caller's stack; false: this block is not to be sampled (made by whoever captures, say).
  bool (*capture)(std::uint32_t* site);
  std::uint32_t (*now_ms)();
};

// Outside of malloc, while the process has one thread.
void start_sampling(const SamplePolicy& policy);
inline constinit std::uint64_t sample_interval_bytes = 0;  // 0: none are taken
inline bool samples_every_block() { return sample_interval_bytes == 1; }

// Bytes to the next sample.
std::int64_t draw_distance(std::uint64_t& random);

// A block that counts as sampled; null: no memory, or not to be sampled: serve it like others.
void* allocate_sampled(std::size_t bytes, unsigned size_class);
// Notes the site of a large block that was just made, if a sample is due.
void sample_large(Page& page, std::size_t bytes);
// Whether a block that exists, free or not, starts there.
bool is_sampled_block(const Page& page, std::size_t offset);
// False: no live block starts there.
bool free_sampled(Page& page, std::size_t offset);
bool is_live_sampled(const Page& page, std::size_t offset);
// A block that was resized in place.
void note_sampled_size(Page& page, std::size_t offset, std::size_t bytes);

struct Sample {
  const void* block;
  std::size_t usable_bytes, requested_bytes;
  std::uint32_t site, born_ms;
  double weight;  // so many blocks of its size it stands for
};
// Live ones. `visit` must not allocate from the pool.
void visit_samples(void (*visit)(void* context, const Sample& sample), void* context);

// Sampled blocks that were handed out ever, of the class.
std::uint64_t sampled_allocations(unsigned size_class);

void samples_before_fork();
void samples_after_fork();

}  // namespace cistern::host_pool
