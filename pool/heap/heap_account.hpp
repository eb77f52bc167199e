// The share of one heap in the account of the host pool (account.hpp), and the counts of heaps whose threads a fork
// left behind.
#pragma once
#include "pool/heap/pages.hpp"

namespace cistern::host_pool {

struct ClassAccount {
  std::uint64_t live_blocks = 0;
  std::uint64_t free_blocks = 0;  // in pages of the class, those never used among them
  std::uint64_t allocations = 0;  // ever; in a forked child since the fork
  std::uint64_t page_bytes = 0;
};

struct Account {
  ClassAccount classes[kClasses];
  std::uint64_t large_blocks = 0, large_bytes = 0, large_allocations = 0;
  std::uint64_t large_allocated_bytes = 0;
  std::uint64_t temporary_blocks = 0;  // where every block has a site: freed by the next call of their thread
  std::uint64_t moves = 0;             // allocations that only moved a block; `allocations` of the classes has them too
  std::uint64_t inherited_blocks = 0;  // that lived when this process was forked
  std::uint64_t live_blocks() const;
  std::uint64_t live_bytes() const;  // usable
  std::uint64_t allocations() const;
  std::uint64_t allocated_bytes() const;  // usable; a block that moves counts where it was and where it is
};

// Small blocks of the class that wait in the heap's list and behind it: handed out by their page, not yet allocated.
unsigned listed_blocks(const Heap& heap, unsigned id);
// Those of another thread's page that wait in a batch for it: handed out by it, not live any more.
struct BatchedBlocks {
  unsigned size_class = 0, blocks = 0;
};
BatchedBlocks batched_blocks(const RemoteBatch& batch);
// Blocks in lists and batches count as handed out in their pages; those of lists were not allocated yet.
void add_heap(Account& sum, const Heap& heap);

// The heap's thread exists in the parent process only: what it had allocated counts as allocated before the fork. The
// heap is about to be taken apart.
void count_forked_away(const Heap& heap);
// Later it turned out that the count was wrong by so many allocations and live blocks.
void shift_account(const std::int64_t (&allocations)[kClasses], std::int64_t live_blocks);

}  // namespace cistern::host_pool
