// Live blocks of the library's pools, by address. A record is claimed by the one thread that may end its block, and is
// used again for others: what it says counts as long as nothing changed since it was seen.
#pragma once
#include "shim/library/pool_accounts.hpp"

namespace cistern::library {

struct PoolBlock {
  std::atomic<std::uintptr_t> address{0};
  std::atomic<std::uint64_t> state{0};  // pool_blocks.cpp
  std::atomic<Account*> account{nullptr};
  std::atomic<std::uint64_t> bytes{0};
  // While the block lives, only its owner reads and writes these.
  std::uintptr_t base = 0;         // the kind's address; `address` may lie behind it, to be aligned
  std::uint64_t placed_bytes = 0;  // whole pages that were placed; 0: none
  int device = -1;                 // in whose primary context it was made; -1: in the current one
  SegmentsAt* segments = nullptr;  // it was cut out of one of these
  PoolBlock* next_unused = nullptr;

  bool is_live() const;
};

// The facts of a block besides its address.
struct BlockMade {
  std::uint64_t bytes;
  std::uintptr_t base;
  std::uint64_t placed_bytes;
  int device;
  SegmentsAt* segments;
};
void keep_block(PoolBlock* record, Account& account, std::uintptr_t address, const BlockMade& made);

// The account that owns the live block at an address, and the state of its record then; null: there is no such block.
struct SeenBlock {
  PoolBlock* record;
  std::uint64_t state;
  Account* account;
};
SeenBlock see_block(std::uintptr_t address);

// One of several threads may end the block. It then ends the block, or lets it live on.
bool claim_block(const SeenBlock& seen);
void end_block(const SeenBlock& seen, std::uintptr_t address);  // its record is the account's again: leave()
void let_block_live(const SeenBlock& seen);
// The process's own pool has got this address: a block of another pool that lay there has gone with its context.
void forget_stale_block(std::uintptr_t address);

// Under a lock: it must not call out of Cistern.
void visit_pool_blocks(void (*visit)(PoolBlock& block, void* context), void* context);

void blocks_before_fork();
void blocks_after_fork();

}  // namespace cistern::library
