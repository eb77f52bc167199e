// See registered_memory.hpp.
#include "pool/base/registered_memory.hpp"

#include <cstdint>
#include <new>

#include "pool/base/forked.hpp"
#include "pool/base/lock.hpp"
#include "pool/base/page_size.hpp"
#include "pool/base/parts.hpp"

namespace cistern {
namespace {

struct Sets {
  Parts registered, locked;
};

constinit Lock sets_lock;
constinit Sets* sets = nullptr;  // made with the first range

Range bytes_of(const void* memory, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  return {begin, begin + bytes};
}

Range pages_of(const void* memory, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  return {page_begin(begin), whole_pages(begin + bytes)};
}

// Under the lock.
template <class Change>
void change_held(Change change_sets) {
  if (!sets) sets = new (internal_allocate(sizeof(Sets))) Sets;
  change_sets(*sets);
  registered_memory::any.store(!sets->registered.empty() || !sets->locked.empty(), std::memory_order_relaxed);
}

// Not in a signal handler that interrupted this thread in here: a range is missed then, or stays.
template <class Change>
void change(Change change_sets) {
  if (sets_lock.held_here()) return;
  Locked hold(sets_lock);
  change_held(change_sets);
}

bool overlaps(const Parts& ranges, const Range& range) {
  const Range next = ranges.next(range.begin);
  return next.begin < next.end && next.begin < range.end;
}

}  // namespace

void note_registered(const void* memory, std::size_t bytes) {
  change([&](Sets& all) { all.registered.add(bytes_of(memory, bytes)); });
}

void forget_registered(const void* memory, std::size_t bytes) {
  change([&](Sets& all) { all.registered.remove(bytes_of(memory, bytes)); });
}

void note_locked(const void* memory, std::size_t bytes) {
  change([&](Sets& all) { all.locked.add(pages_of(memory, bytes)); });
}

void forget_locked(const void* memory, std::size_t bytes) {
  if (!registered_memory::any.load(std::memory_order_relaxed)) return;
  if (sets_lock.held_here()) return;
  const LockedUnlessForking hold(sets_lock);
  if (hold) change_held([&](Sets& all) { all.locked.remove(pages_of(memory, bytes)); });
}

void note_all_locked(bool future) {
  registered_memory::future_locked.store(future, std::memory_order_relaxed);
  change([](Sets& all) { all.locked.add({0, page_begin(UINTPTR_MAX)}); });
}

void forget_all_locked() {
  registered_memory::future_locked.store(false, std::memory_order_relaxed);
  if (!registered_memory::any.load(std::memory_order_relaxed)) return;
  change([](Sets& all) { all.locked.clear(); });
}

Registered registered_memory::find(const void* memory, std::size_t bytes) {
  if (sets_lock.held_here()) return {true, true};
  const LockedUnlessForking hold(sets_lock);
  if (!hold) return {true, true};
  if (!sets) return {};
  const Range range = bytes_of(memory, bytes);
  const bool stays_locked = future_locked.load(std::memory_order_relaxed);
  return {overlaps(sets->registered, range), !stays_locked && overlaps(sets->locked, range)};
}

void registered_memory_before_fork() { sets_lock.lock_for_fork(); }
void registered_memory_after_fork() { sets_lock.unlock_after_fork(); }
void registered_memory_after_fork_in_child() {
  if (sets) *sets = Sets{};
  set_in_child(registered_memory::any, false);
  set_in_child(registered_memory::future_locked, false);
  registered_memory_after_fork();
}

}  // namespace cistern
