// See pool_blocks.hpp.
#include "shim/core/pool_blocks.hpp"

#include <new>

#include "pool/base/address_table.hpp"

namespace cistern::library {
namespace {

// In two bits of a word; the others number the births of the record.
enum BlockState : std::uint64_t { kGone, kLive, kGoing, kStateMask = 3, kBirth = 4 };

constinit AddressTable<PoolBlock> blocks;
constinit Lock unused_lock;
constinit PoolBlock* blocks_unused = nullptr;

PoolBlock* new_block() {
  const Locked hold(unused_lock);
  PoolBlock* const block = blocks_unused;
  if (!block) return new (internal_allocate(sizeof(PoolBlock))) PoolBlock;
  blocks_unused = block->next_unused;
  return block;
}

void put_away(PoolBlock* block) {
  block->state.store((block->state.load() & ~std::uint64_t{kStateMask}) | kGone);
  block->address.store(0, std::memory_order_release);
  const Locked hold(unused_lock);
  block->next_unused = blocks_unused;
  blocks_unused = block;
}

// A record that another one took the place of: the block was freed by a call that knows no pools.
void end_stale(PoolBlock* stale, std::uintptr_t address) {
  const SeenBlock seen{stale, stale->state.load(), nullptr};
  // Or a deallocation has it in hand, or had.
  if ((seen.state & kStateMask) != kLive || stale->address.load() != address || !claim_block(seen)) return;
  Account& account = *stale->account.load();
  account.frees.fetch_add(1, std::memory_order_relaxed);
  leave(account, stale->bytes);
  put_away(stale);
}

}  // namespace

bool PoolBlock::is_live() const { return (state.load() & kStateMask) == kLive; }

void keep_block(Account& account, std::uintptr_t address, const BlockMade& made) {
  PoolBlock* const block = new_block();
  block->account = &account;
  block->bytes = made.bytes;
  block->base = made.base;
  block->placed_bytes = made.placed_bytes;
  block->device = made.device;
  block->address.store(address, std::memory_order_relaxed);
  block->state.store((block->state.load() & ~std::uint64_t{kStateMask}) + kBirth + kLive);
  if (PoolBlock* const stale = blocks.insert(address, block)) end_stale(stale, address);
}

SeenBlock see_block(std::uintptr_t address) {
  PoolBlock* const record = blocks.find(address);
  if (!record) return {};
  const std::uint64_t state = record->state.load();
  Account* const account = record->account.load();
  const bool is_it = (state & kStateMask) == kLive && record->address.load() == address;
  return is_it && record->state.load() == state ? SeenBlock{record, state, account} : SeenBlock{};
}

bool claim_block(const SeenBlock& seen) {
  std::uint64_t state = seen.state;
  return seen.record->state.compare_exchange_strong(state, (state & ~std::uint64_t{kStateMask}) | kGoing);
}

void end_block(const SeenBlock& seen, std::uintptr_t address) {
  blocks.erase(address, seen.record);
  put_away(seen.record);
}

void let_block_live(const SeenBlock& seen) { seen.record->state.store(seen.state); }

void visit_pool_blocks(void (*visit)(PoolBlock& block, void* context), void* context) {
  blocks.for_each([&](PoolBlock& block) { visit(block, context); });
}

void blocks_before_fork() {
  blocks.before_fork();
  unused_lock.lock_for_fork();
}

void blocks_after_fork() {
  unused_lock.unlock_after_fork();
  blocks.after_fork();
}

}  // namespace cistern::library
