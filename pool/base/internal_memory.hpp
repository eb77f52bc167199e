// Memory for Cistern's own tables. Never malloc: the program's malloc may be ours, may be held in a lock
// across fork, and must not show our bookkeeping in its counts.
// Small blocks come from free lists by size, cut from mapped chunks, large ones are mapped one by one.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

namespace cistern {

// 16-byte aligned, never null: without memory for its tables the shim cannot stay truthful, so it says so and aborts.
void* internal_allocate(std::size_t bytes);
// The same, or null: for tables that the program can do without.
void* internal_try_allocate(std::size_t bytes);
void* internal_try_allocate_zeroed(std::size_t bytes);
void internal_deallocate(void* block, std::size_t bytes);
// What the tables cost, in bytes mapped from the system.
std::size_t internal_mapped_bytes();
// Where they lie. For who looks for the program's own pointers: ours are none. What was mapped while the process
// forked may be missing.
void visit_internal_memory(void (*visit)(void* context, std::uintptr_t first, std::size_t bytes), void* context);

// The arena's lock across fork (shim/core/fork.cpp). Meanwhile small blocks are mapped one by one, and none comes back.
void internal_memory_before_fork();
void internal_memory_after_fork();

template <class T>
struct InternalAllocator {
  using value_type = T;
  InternalAllocator() = default;
  template <class U>
  InternalAllocator(const InternalAllocator<U>&) {}
  T* allocate(std::size_t count) { return static_cast<T*>(internal_allocate(count * sizeof(T))); }
  void deallocate(T* block, std::size_t count) { internal_deallocate(block, count * sizeof(T)); }
  bool operator==(const InternalAllocator&) const { return true; }
};

template <class T>
using Vector = std::vector<T, InternalAllocator<T>>;
template <class T>
using Deque = std::deque<T, InternalAllocator<T>>;
template <class K, class V, class Hash = std::hash<K>>
using Map = std::unordered_map<K, V, Hash, std::equal_to<K>, InternalAllocator<std::pair<const K, V>>>;
using String = std::basic_string<char, std::char_traits<char>, InternalAllocator<char>>;

}  // namespace cistern
