// Slabs: chunks of a source that are cut into pieces of one size. This only keeps account of the pieces. The caller
// gets the memory, gives it back, and holds the lock.
//
//   take(key) -> a piece of a slab with room; none: the caller gets memory -> add(key, ...), the new slab's first piece
//   give_back(slab, piece) -> true: it was the slab's last piece, and the caller gives the slab's memory back
#pragma once
#include <new>
#include <optional>
#include <utility>

#include "pool/base/internal_memory.hpp"
#include "pool/pool_key.hpp"

namespace cistern {

struct Slab {
  PoolKey key;  // of its pieces, with their size
  std::uintptr_t first;
  std::uint64_t bytes;
  std::uint32_t life;  // of the group, for the caller: a group may end and begin anew
  std::uint32_t given = 0;
  Vector<std::uint32_t> free{};
  std::size_t index = 0;  // among the slabs of its key
};

class Slabs {
 public:
  struct Piece {
    Slab* slab;
    std::uintptr_t address;
  };

  std::optional<Piece> take(const PoolKey& key) {
    const auto found = of_key_.find(key);
    if (found == of_key_.end() || found->second.full == found->second.slabs.size()) return std::nullopt;
    return piece_of(found->second, found->second.slabs[found->second.full]);
  }

  Piece add(const PoolKey& key, std::uintptr_t first, std::uint64_t bytes, std::uint32_t life) {
    auto* const slab = new (internal_allocate(sizeof(Slab))) Slab{key, first, bytes, life};
    for (auto i = static_cast<std::uint32_t>(bytes / key.bytes); i-- > 0;) slab->free.push_back(i);
    OfKey& own = of_key_[key];
    slab->index = own.slabs.size();
    own.slabs.push_back(slab);
    // The piece is one of this slab, even if another slab has room by now: a slab without pieces would never go.
    return piece_of(own, slab);
  }

  // `again`: the piece may be given again; else it goes with its slab.
  bool give_back(Slab* slab, std::uintptr_t piece, bool again) {
    const auto found = of_key_.find(slab->key);
    OfKey& own = found->second;
    const bool was_full = slab->free.empty(), is_last = slab->given == 1;
    if (was_full && (again || is_last)) own.move(slab, --own.full);
    if (again) slab->free.push_back(static_cast<std::uint32_t>((piece - slab->first) / slab->key.bytes));
    --slab->given;
    if (!is_last) return false;
    own.move(slab, own.slabs.size() - 1);
    own.slabs.pop_back();
    if (own.slabs.empty()) of_key_.erase(found);
    return true;
  }

  // One that is in no list any more.
  static void end(Slab* slab) {
    slab->~Slab();
    internal_deallocate(slab, sizeof(Slab));
  }

  // The slabs of a group are forgotten, one after another; they stay in memory, for who still points to them.
  template <class Visit>
  void forget(std::uintptr_t group, Visit visit) {
    std::erase_if(of_key_, [&](auto& entry) {
      if (entry.first.group != group) return false;
      for (const Slab* slab : entry.second.slabs) visit(*slab);
      return true;
    });
  }
  void forget_all() { of_key_.clear(); }

 private:
  // First those that are full, then those with room. Each knows its place.
  struct OfKey {
    Vector<Slab*> slabs;
    std::size_t full = 0;

    void move(Slab* slab, std::size_t index) {
      Slab* const other = slabs[index];
      std::swap(slabs[index], slabs[slab->index]);
      std::swap(other->index, slab->index);
    }
  };

  static Piece piece_of(OfKey& own, Slab* slab) {
    const std::uint32_t number = slab->free.back();
    slab->free.pop_back();
    ++slab->given;
    if (slab->free.empty()) own.move(slab, own.full++);
    return {slab, slab->first + number * slab->key.bytes};
  }

  Map<PoolKey, OfKey, PoolKeyHash> of_key_;
};

}  // namespace cistern
