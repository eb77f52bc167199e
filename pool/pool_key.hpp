// The key by which a pool tells chunks apart.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cistern {

// Chunks are interchangeable if all three are equal. `group` is the object with which they end: a context.
struct PoolKey {
  std::uintptr_t group;
  std::uint64_t traits;
  std::uint64_t bytes;
  bool operator==(const PoolKey&) const = default;
};

struct PoolKeyHash {
  std::size_t operator()(const PoolKey& key) const {
    std::uint64_t hash = key.group;
    for (std::uint64_t word : {key.traits, key.bytes}) hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
    return hash ^ (hash >> 29);
  }
};

// By group and traits, and by size within them.
struct PoolKeyOrder {
  bool operator()(const PoolKey& a, const PoolKey& b) const {
    if (a.group != b.group) return a.group < b.group;
    if (a.traits != b.traits) return a.traits < b.traits;
    return a.bytes < b.bytes;
  }
};

}  // namespace cistern
