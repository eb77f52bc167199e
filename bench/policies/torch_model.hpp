// A model of PyTorch's caching allocator (c10/cuda/CUDACachingAllocator.cpp, 2.10): its sizes, its best fit, and when
// it goes to the driver. Blocks belong to a stream for as long as they are cached. In whatever order the program works,
// a block that another stream frees waits for the work there, as with record_stream.
//
// There are two kinds of segments. Fixed ones are driver allocations of 2 MiB (for requests up to 1 MiB), 20 MiB (up to
// 10 MiB), or the request's own size in 2 MiB. Expandable ones are ranges of addresses, one for each stream and kind of
// size, that are mapped page by page, 2 or 20 MiB each.
#pragma once
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "bench/policies/policy.hpp"

namespace bench {

class TorchModel final : public Policy {
 public:
  TorchModel(Device& device, Order order, bool expandable)
      : device_(device), expandable_(expandable), is_strict_(order == Order::strict) {}

  std::optional<std::uint64_t> allocate(std::uint64_t bytes, unsigned stream) override {
    settle();
    bytes = rounded_up(bytes, kGranule);
    Pool& pool = pools_[{stream, bytes <= kSmallMax}];
    pool.is_small = bytes <= kSmallMax;
    Block* block = best_fit(pool, bytes);
    if (!block) block = grow(pool, bytes);
    if (!block && release_cached()) block = grow(pool, bytes);
    if (!block) return std::nullopt;
    forget(block);
    const std::uint64_t rest = block->bytes - bytes;
    if (expandable_ || pool.is_small ? rest >= kGranule : rest > kSmallMax) noted(split(block, bytes));
    block->state = State::live;
    live_[block->first] = block;
    return block->first;
  }

  void deallocate(std::uint64_t address, std::uint64_t, unsigned stream) override {
    Block* const block = live_.extract(address).mapped();
    if (is_strict_ || &pools_[{stream, block->pool->is_small}] == block->pool)
      set_free(block);
    else
      waiting_.push_back({device_.now(), block});
  }

 private:
  static constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  static constexpr std::uint64_t kGranule = 512, kSmallMax = kMiB, kSmallSegment = 2 * kMiB, kLargeSegment = 20 * kMiB;
  static constexpr std::uint64_t kLargeMin = 10 * kMiB, kLargeRound = 2 * kMiB;

  enum class State { unmapped, free, live };
  struct Pool;
  struct Block {
    std::uint64_t first, bytes;
    State state;
    Pool* pool;
    Block *before = nullptr, *after = nullptr;  // in the same segment
  };
  struct BySize {
    bool operator()(const Block* a, const Block* b) const {
      return std::tie(a->bytes, a->first) < std::tie(b->bytes, b->first);
    }
  };
  struct ByAddress {
    bool operator()(const Block* a, const Block* b) const { return a->first < b->first; }
  };
  struct Pool {
    bool is_small = false;
    std::set<Block*, BySize> free;
    std::set<Block*, ByAddress> unmapped;
    std::uint64_t page() const { return is_small ? kSmallSegment : kLargeSegment; }
  };

  Block* best_fit(Pool& pool, std::uint64_t bytes) {
    Block key{0, bytes, State::free, nullptr};
    const auto found = pool.free.lower_bound(&key);
    return found == pool.free.end() ? nullptr : *found;
  }

  // A free block with at least so many bytes, in new memory.
  Block* grow(Pool& pool, std::uint64_t bytes) {
    if (expandable_) return expand(pool, bytes);
    const std::uint64_t segment = bytes <= kSmallMax  ? kSmallSegment
                                  : bytes < kLargeMin ? kLargeSegment
                                                      : rounded_up(bytes, kLargeRound);
    if (!device_.take(Call::allocate, segment)) return nullptr;
    return noted(made({device_.new_addresses(segment), segment, State::free, &pool}));
  }

  // --- Expandable segments
  Block* expand(Pool& pool, std::uint64_t bytes) {
    Block* block = room(pool, bytes);
    if (block->state == State::unmapped) block = mapped(block, std::min(block->bytes, bytes));
    while (block && block->bytes < bytes) {
      Block* const next = block->after;
      block = mapped(next, std::min(bytes - block->bytes, next->bytes));
    }
    return block;
  }
  // The first block of a row of free and unmapped ones with so many bytes.
  Block* room(Pool& pool, std::uint64_t bytes) {
    for (Block* block : pool.unmapped) {
      if (block->before && block->before->state == State::free) block = block->before;
      std::uint64_t found = 0;
      for (const Block* at = block; at && at->state != State::live && found < bytes; at = at->after) found += at->bytes;
      if (found >= bytes) return block;
    }
    const std::uint64_t page = pool.page(), segment = rounded_up(std::max(device_.memory_bytes() / 8 * 9, bytes), page);
    const std::uint64_t first = rounded_up(device_.new_addresses(segment + page), page);
    return noted(made({first, segment, State::unmapped, &pool}));
  }
  // The pages of the first bytes are mapped. The free block that they belong to then; null: out of memory.
  Block* mapped(Block* block, std::uint64_t bytes) {
    const std::uint64_t page = block->pool->page(), end = block->first + rounded_up(bytes, page);
    for (std::uint64_t at = block->first; at < end; at += page) {
      if (!device_.take(Call::create, page)) {
        for (; at > block->first; at -= page) unmap_page(page);
        return nullptr;
      }
      device_.call(Call::map);
    }
    device_.call(Call::allow_access);
    forget(block);
    if (end < block->first + block->bytes) noted(split(block, end - block->first));
    return set_free(block);
  }
  void unmap_page(std::uint64_t page) {
    device_.call(Call::unmap);
    device_.give_back(Call::destroy, page);
  }
  // The whole pages inside of a free block go back. True: there are some.
  bool unmapped(Block* block) {
    const std::uint64_t page = block->pool->page(), first = rounded_up(block->first, page),
                        end = (block->first + block->bytes) / page * page;
    if (first >= end) return false;
    forget(block);
    if (end < block->first + block->bytes) noted(split(block, end - block->first));
    if (block->first < first) {
      Block* const rest = split(block, first - block->first);
      noted(block);
      block = rest;
    }
    for (std::uint64_t at = first; at < end; at += page) unmap_page(page);
    block->state = State::unmapped;
    noted(joined(block));
    return true;
  }

  // --- Out of memory: every segment, or page, without a live block goes back.
  bool release_cached() {
    bool any = false;
    while (!waiting_.empty()) {
      device_.synchronise();
      settle();
    }
    for (auto& [of, pool] : pools_) {
      const std::set<Block*, BySize> free = pool.free;
      for (Block* const block : free) {
        if (expandable_) {
          any |= unmapped(block);
        } else if (!block->before && !block->after) {
          any = true;
          forget(block);
          device_.give_back(Call::free, block->bytes);
          unused_.push_back(block);
        }
      }
    }
    return any;
  }

  // --- Blocks
  Block* made(const Block& like) {
    if (unused_.empty()) return &all_.emplace_back(like);
    Block* const block = unused_.back();
    unused_.pop_back();
    *block = like;
    return block;
  }
  Block* noted(Block* block) {
    block->state == State::free ? (void)block->pool->free.insert(block) : (void)block->pool->unmapped.insert(block);
    return block;
  }
  void forget(Block* block) {
    block->state == State::free ? block->pool->free.erase(block) : block->pool->unmapped.erase(block);
  }
  // Cuts a block that is not noted behind its first bytes. The rest is a block of the same state.
  Block* split(Block* block, std::uint64_t bytes) {
    Block* const rest = made(*block);
    rest->first += bytes;
    rest->bytes -= bytes;
    rest->before = block;
    if (rest->after) rest->after->before = rest;
    block->after = rest;
    block->bytes = bytes;
    return rest;
  }
  Block* set_free(Block* block) {
    block->state = State::free;
    return noted(joined(block));
  }
  // One with its neighbours of the same state. It is not noted.
  Block* joined(Block* block) {
    for (Block* other : {block->after, block->before}) {
      if (!other || other->state != block->state) continue;
      forget(other);
      Block* const first = std::min(block, other, ByAddress());
      Block* const second = std::max(block, other, ByAddress());
      first->bytes += second->bytes;
      first->after = second->after;
      if (first->after) first->after->before = first;
      unused_.push_back(second);
      block = first;
    }
    return block;
  }
  void settle() {
    for (; !waiting_.empty() && device_.has_ended(waiting_.front().first); waiting_.pop_front())
      set_free(waiting_.front().second);
  }

  Device& device_;
  const bool expandable_, is_strict_;
  std::map<std::pair<unsigned, bool>, Pool> pools_;
  std::unordered_map<std::uint64_t, Block*> live_;
  std::deque<std::pair<std::uint64_t, Block*>> waiting_;
  std::deque<Block> all_;
  std::vector<Block*> unused_;
};

}  // namespace bench
