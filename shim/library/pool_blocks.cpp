// See pool_blocks.hpp.
#include "shim/library/pool_blocks.hpp"

#include "pool/base/address_table.hpp"
#include "shim/library/pools.hpp"

namespace cistern::library {
namespace {

// In two bits of a word; the others number the births of the record.
enum BlockState : std::uint64_t { kGone, kLive, kGoing, kStateMask = 3, kBirth = 4 };

constinit AddressTable<PoolBlock> blocks;

void set_gone(PoolBlock* record) {
  record->state.store((record->state.load() & ~std::uint64_t{kStateMask}) | kGone, std::memory_order_release);
  record->address.store(0, std::memory_order_release);
}

// A record that another one took the place of: the block was freed by a call that knows no pools.
void end_stale(PoolBlock* stale, std::uintptr_t address) {
  const SeenBlock seen{stale, stale->state.load(), nullptr};
  // Or a deallocation has it in hand, or had.
  if ((seen.state & kStateMask) != kLive || stale->address.load() != address || !claim_block(seen)) return;
  set_gone(stale);
  leave(*stale->account.load(), stale->bytes, stale);
}

}  // namespace

bool PoolBlock::is_live() const { return (state.load() & kStateMask) == kLive; }

// The members are written before the state says live: other threads read the state first.
void keep_block(PoolBlock* block, Account& account, std::uintptr_t address, const BlockMade& made) {
  block->account.store(&account, std::memory_order_relaxed);
  block->bytes.store(made.bytes, std::memory_order_relaxed);
  block->base = made.base;
  block->placed_bytes = made.placed_bytes;
  block->device = made.device;
  block->segments = made.segments;
  block->address.store(address, std::memory_order_relaxed);
  block->state.store((block->state.load() & ~std::uint64_t{kStateMask}) + kBirth + kLive, std::memory_order_release);
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
  set_gone(seen.record);
}

void forget_stale_block(std::uintptr_t address) {
  const SeenBlock stale = any_pool.load(std::memory_order_relaxed) ? see_block(address) : SeenBlock{};
  if (!stale.record || !claim_block(stale)) return;
  const std::uint64_t bytes = stale.record->bytes;
  end_block(stale, address);
  leave(*stale.account, bytes, stale.record);
}

void let_block_live(const SeenBlock& seen) { seen.record->state.store(seen.state); }

void visit_pool_blocks(void (*visit)(PoolBlock& block, void* context), void* context) {
  blocks.for_each([&](PoolBlock& block) { visit(block, context); });
}

void blocks_before_fork() { blocks.before_fork(); }
void blocks_after_fork() { blocks.after_fork(); }

}  // namespace cistern::library
