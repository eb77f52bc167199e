// The live blocks of a pool, found by the address where each begins: a hash table without a node for each entry, so
// that a look costs one cache line whatever lives.
//
// Not thread-safe. Addresses are multiples of 512, and none is 0.
#pragma once
#include <cstddef>
#include <cstdint>

#include "pool/base/internal_memory.hpp"
#include "pool/ranges/extents.hpp"

namespace cistern::ranges {

class LiveBlocks {
 public:
  // Null: no block begins there.
  Extent* find(std::uint64_t first) const {
    const std::size_t at = place(first);
    return slots_.empty() ? nullptr : slots_[at].extent;
  }
  void insert(Extent* extent) {
    if ((count_ + 1) * 2 > slots_.size()) grow();
    slots_[place(extent->first)] = {extent->first, extent};
    ++count_;
  }
  // The block is there. Those behind it in its row of used slots move up, so that each is found from its own place on.
  void erase(std::uint64_t first) {
    std::size_t hole = place(first);
    for (std::size_t at = next(hole); slots_[at].extent; at = next(at)) {
      if (distance(home(slots_[at].first), at) < distance(hole, at)) continue;
      slots_[hole] = slots_[at];
      hole = at;
    }
    slots_[hole] = {};
    --count_;
  }
  template <class Visit>
  void take_all(Visit visit) {
    for (Slot& slot : slots_)
      if (Extent* const extent = slot.extent) slot = {}, visit(extent);
    count_ = 0;
  }
  std::size_t count() const { return count_; }

 private:
  struct Slot {
    std::uint64_t first = 0;
    Extent* extent = nullptr;
  };
  // The upper bits of a product depend on all bits of the address.
  std::size_t home(std::uint64_t first) const { return (first >> 9) * 0x9E3779B97F4A7C15u >> shift_; }
  std::size_t next(std::size_t at) const { return (at + 1) & (slots_.size() - 1); }
  std::size_t distance(std::size_t from, std::size_t to) const { return (to - from) & (slots_.size() - 1); }
  // The block's slot, or the unused one where it would be.
  std::size_t place(std::uint64_t first) const {
    std::size_t at = slots_.empty() ? 0 : home(first);
    while (!slots_.empty() && slots_[at].extent && slots_[at].first != first) at = next(at);
    return at;
  }
  void grow() {
    Vector<Slot> old(slots_.empty() ? 64 : slots_.size() * 2);
    old.swap(slots_);
    shift_ = static_cast<unsigned>(__builtin_clzll(slots_.size()) + 1);
    for (const Slot& slot : old)
      if (slot.extent) slots_[place(slot.first)] = slot;
  }

  Vector<Slot> slots_;
  unsigned shift_ = 0;
  std::size_t count_ = 0;
};

}  // namespace cistern::ranges
