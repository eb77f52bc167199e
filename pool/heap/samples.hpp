// Blocks with call sites, as the rest of the pool sees them: those in pages of sampled blocks, and large ones.
//
// Pages of sampled blocks belong to no thread; their locks are spread over the threads.
#pragma once
#include "pool/heap/sampling.hpp"

namespace cistern::host_pool {

// Where every block has a site: blocks that were freed by the next call of their thread, ever.
std::uint64_t temporary_blocks_ever();

// --- Blocks in pages of their own
// A block that counts as sampled; null: no memory, or not to be sampled: serve it like others.
void* allocate_sampled(std::size_t bytes, unsigned size_class, unsigned doublings);
// Whether a block that exists, free or not, starts there.
bool is_sampled_block(const Page& page, std::size_t offset);
// False: no live block starts there.
bool free_sampled(Page& page, std::size_t offset);
// Usable bytes of the live block that starts there; 0: none.
std::size_t live_sampled_bytes(const Page& page, std::size_t offset);
// The site of a block that exists, free or not; 0: none is known.
std::uint32_t site_of_sampled(const Page& page, std::size_t offset);
// A block that was resized in place.
void note_sampled_size(Page& page, std::size_t offset, std::size_t bytes);

// --- Large blocks
// A block that was just made has no site yet.
void forget_site(Page& page);
// Notes its site, if a sample of the heap is due.
void sample_large(Heap& heap, Page& page, std::size_t bytes);
// The same block has another size now.
void sample_resized(Page& page);
// Before its memory may be another block's.
void note_large_died(const Page& page);

// --- All of them
// Live ones. `visit` must not allocate from the pool. False: a thread forks, which was not to be waited for; some are
// missing.
bool visit_samples(void (*visit)(void* context, const Sample& sample), void* context, AtFork at_fork = AtFork::wait);

// Reads the block with that number in its page, for Picture; the sizes only where it is live.
void read_sampled(const Page& page, unsigned number, std::size_t& bytes, std::size_t& requested_bytes, bool& live);

// Blocks in pages of their own, by class: handed out ever, and live.
std::uint64_t sampled_allocations(unsigned size_class);
std::uint64_t live_sampled_blocks(unsigned size_class);

void samples_before_fork();
void samples_after_fork();
void samples_after_fork_in_child();

}  // namespace cistern::host_pool
