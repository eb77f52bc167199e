// Blocks of pooled CUDA memory, device and pinned: found by address, and by any address inside.
//
// A block is a whole driver allocation, or one piece of a slab of small pinned blocks, or cut from a range or a
// segment. Its record never goes away and is used again for another block; `address` says what it stands for now, 0 for
// nothing.
#pragma once
#include <optional>

#include "backends/cuda/context.hpp"
#include "pool/base/address_table.hpp"
#include "pool/base/range_index.hpp"
#include "pool/slabs.hpp"

namespace cistern::cuda {

// live -> (freed by the program) -> cached -> live ...   or -> gone, before the real free
enum class BlockState : std::uint8_t { gone, live, cached };
enum class BlockKind : std::uint8_t { device, pinned };

// A member that other threads may read while it is written: what was written before it is there for who sees it.
template <class T>
class Published {
 public:
  Published(T value) : value_(value) {}
  operator T() const { return value_.load(std::memory_order_acquire); }
  T operator->() const { return *this; }
  T operator=(T value) {
    value_.store(value, std::memory_order_release);
    return value;
  }

 private:
  std::atomic<T> value_;
};

// The part of a pool in which a block is kept: see PoolKey.
struct Sort {
  BlockKind kind;
  const Context* context;
  std::uint64_t traits;
};

struct Block {
  std::atomic<std::uintptr_t> address{0};
  std::atomic<BlockState> state{BlockState::gone};
  std::atomic<bool> marked{false};  // exported or marked through the driver: really freed, never given again
  bool unpooled = false;            // got by a call of the program's own, and really freed
  BlockKind kind = BlockKind::device;
  Published<Context*> context = nullptr;
  Published<std::uint32_t> epoch = 0;  // the context's, when the block was made
  Published<std::uint64_t> bytes = 0;  // of the chunk
  std::uint64_t traits = 0;            // pinned: how it was allocated
  Slab* slab = nullptr;
  DeviceRange* range = nullptr;  // it lies there
  bool in_segment = false;       // the library cut it out of one (shim/cuda/segments.hpp)
  // It went back to its range or segment: the record only tells what lay there last.
  std::atomic<bool> is_former{false};
  // Since it was handed out, work on further streams was said to use it: none; known streams; one that is not known.
  std::atomic<std::uint8_t> further_streams{0};
  std::atomic<bool> syncs_memops{false};    // as the program set the attribute; of a block in a range
  std::atomic<bool> in_ring{false};         // a chunk of staged copies: neither the program's nor kept for it
  bool unsettled = false;                   // released while commands may still use it
  bool recycled = false;                    // given to the program more than once
  std::atomic<std::uint64_t> buffer_id{0};  // a recycled block's own, made when it is first asked for
  // The program's request. Each time the block is handed out, `births` changes first, then these members, then `state`:
  // see read_live.
  std::atomic<std::uint32_t> births{0};
  Published<std::uint64_t> requested = 0;
  Published<const char*> api = "";
  Published<std::uint32_t> site = 0, freed_site = 0;
  Published<std::uint64_t> born_ns = 0;
  Block* next_unused = nullptr;

  // Cut from a larger allocation: the driver does not know it.
  bool is_part() const { return slab || range || in_segment; }
  // Cut by size, next to blocks of other sizes. A slab has pieces of one size.
  bool in_range_or_segment() const { return range || in_segment; }
  Sort sort() const { return {kind, context, traits}; }
  PoolKey key() const {
    return {reinterpret_cast<std::uintptr_t>(static_cast<const Context*>(context)), traits, bytes};
  }
  bool context_is_there() const {
    return context->alive.load(std::memory_order_relaxed) && context->epoch.load(std::memory_order_relaxed) == epoch;
  }
};

// The answer of `read()`, with all members of one request; nothing: the block was not live meanwhile. For code that
// looks at blocks of other threads.
template <class Read>
auto read_live(const Block& block, Read read) -> std::optional<decltype(read())> {
  const std::uint32_t births = block.births.load(std::memory_order_acquire);
  if (block.state.load(std::memory_order_acquire) != BlockState::live) return std::nullopt;
  auto seen = read();
  if (block.births.load(std::memory_order_relaxed) != births) return std::nullopt;
  return seen;
}

// The content of a range of addresses that the driver gave out.
enum class RangeKind : std::uint8_t { device, pinned, slab, managed, registered };
struct RangeContent {
  RangeKind kind;
  std::uint64_t piece_bytes = 0;  // of a slab
  const void* owner = nullptr;    // block or slab
};
using AddressIndex = RangeIndex<RangeContent>;

class Blocks {
 public:
  AddressTable<Block> table;
  AddressIndex ranges;

  // A record that is not in the table yet: the caller fills it and calls put().
  Block* make() {
    Locked hold(lock_);
    Block* block = unused_;
    if (block)
      unused_ = block->next_unused;
    else
      block = new (internal_allocate(sizeof(Block))) Block;
    return block;
  }
  // The block is findable from now on.
  void put(Block* block, std::uintptr_t address) {
    block->address.store(address, std::memory_order_relaxed);
    block->state.store(BlockState::cached, std::memory_order_release);
    enter_table(block, address);
    if (block->slab) return;
    ranges.insert(address, block->bytes,
                  {block->kind == BlockKind::device ? RangeKind::device : RangeKind::pinned, 0, block});
  }
  // Takes the block out of every table, before the real free: another thread may get the same address immediately. The
  // record stays, to be shown again if the driver refused, or else put away.
  void hide(Block* block) {
    const std::uintptr_t address = block->address.load(std::memory_order_relaxed);
    if (!block->slab) ranges.erase_if(address, [&](const RangeContent& of) { return of.owner == block; });
    Locked hold(lock_);
    if (!table.erase(address, block)) std::erase(displaced_, block);
  }
  void show(Block* block, BlockState state) {
    put(block, block->address.load(std::memory_order_relaxed));
    block->state.store(state, std::memory_order_release);
  }
  void put_away(Block* block) {
    block->state.store(BlockState::gone, std::memory_order_relaxed);
    block->address.store(0, std::memory_order_release);
    block->marked.store(false, std::memory_order_relaxed);
    block->slab = nullptr;
    block->range = nullptr;
    block->in_segment = false;
    block->is_former.store(false, std::memory_order_relaxed);
    block->recycled = block->unsettled = false;
    block->unpooled = false;
    block->in_ring.store(false, std::memory_order_relaxed);
    block->syncs_memops.store(false, std::memory_order_relaxed);
    block->buffer_id = 0;
    block->site = block->freed_site = 0;
    Locked hold(lock_);
    block->next_unused = unused_;
    unused_ = block;
  }
  void forget(Block* block) {
    hide(block);
    put_away(block);
  }

  // These addresses of a range or segment are given again, in one life of the context. The record of the freed block
  // that lay exactly there comes back; null: none did, and those of freed blocks that lay there are forgotten. Records
  // of other lives only leave the index: the driver gave their addresses again, perhaps before the thread that ends
  // their context has accounted for them.
  Block* claim(std::uintptr_t first, std::uint64_t bytes, const Context* context, std::uint32_t epoch) {
    const auto is_freed = [&](const Block& block) {
      return block.is_former.load() && block.context == context && block.epoch == epoch;
    };
    if (Block* const block = table.find(first); block && is_freed(*block) && lay_at(*block, first, bytes)) return block;
    Vector<const Block*> lay_there;
    ranges.erase_within(first, bytes,
                        [&](const RangeContent& of) { lay_there.push_back(static_cast<const Block*>(of.owner)); });
    for (const Block* block : lay_there)
      if (is_freed(*block)) forget(const_cast<Block*>(block));
    return nullptr;
  }

  // Whether the freed block lay exactly there. Another thread may have got the neighbouring addresses, and a freed
  // block may have lain across that border. Then the other thread forgets its record and may use it again meanwhile.
  // Its address changes before its context, epoch and size do, and never to this one.
  static bool lay_at(const Block& block, std::uintptr_t first, std::uint64_t bytes) {
    return block.bytes == bytes && block.address.load(std::memory_order_relaxed) == first;
  }

  // Blocks whose address came again while their context was going: whoever ends the context still accounts for them.
  template <class Visit>
  void for_each_displaced(Visit visit) {
    Locked hold(lock_);
    for (Block* block : displaced_) visit(*block);
  }

  // The block that contains `address`, or null.
  Block* containing(std::uintptr_t address, bool* in_slab = nullptr) {
    const auto range = ranges.find(address);
    if (!range) return nullptr;
    if (in_slab) *in_slab = range->value.kind == RangeKind::slab;
    if (range->value.kind == RangeKind::slab)
      return table.find(range->first + (address - range->first) / range->value.piece_bytes * range->value.piece_bytes);
    return table.find(range->first);
  }

  void before_fork() {
    lock_.lock_for_fork();
    ranges.before_fork();
    table.before_fork();
  }
  void after_fork() {
    table.after_fork();
    ranges.after_fork();
    lock_.unlock_after_fork();
  }

 private:
  void enter_table(Block* block, std::uintptr_t address) {
    Locked hold(lock_);
    if (Block* stale = table.insert(address, block)) displaced_.push_back(stale);
  }

  Lock lock_;
  Block* unused_ = nullptr;
  Vector<Block*> displaced_;
};

}  // namespace cistern::cuda
