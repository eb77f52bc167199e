// The rows that were learnt, by return address: read without a lock by every walk, and kept for good.
//
// Not an AddressTable: a row is a value, found or not found at one look, and no signal handler's walk takes a lock.
//
// A row is final while its module is loaded. One of a module that may be unloaded has a number of that module, and is
// used only after a look whether it is still that one; its code has a frame on this stack, so it stays meanwhile.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "stats/unwind/rows.hpp"

namespace cistern::unwind {

struct Slot {
  std::atomic<std::uintptr_t> address;  // 0: free; then never changed
  std::atomic<Row> row;
};
static_assert(std::atomic<Row>::is_always_lock_free && sizeof(Slot) == 16);

struct Rows {
  unsigned bits, used;
  Slot slots[];
  Slot& first(std::uintptr_t address) { return slots[(address * 0x9E3779B97F4A7C15) >> (64 - bits)]; }
  Slot* end() { return slots + (std::size_t{1} << bits) + kOverhang; }
  static constexpr unsigned kOverhang = 64;  // probes go on behind the last
  static std::size_t bytes(unsigned bits) {
    return sizeof(Rows) + ((std::size_t{1} << bits) + kOverhang) * sizeof(Slot);
  }
};

inline constinit std::atomic<Rows*> rows{nullptr};  // larger ones follow; a walk may go on with the one it began with

// The row of the call that returns to `address`, from the module's tables, from now on in `rows` as well. Takes a lock.
// It stays unknown for code without a module.
Row learn(std::uintptr_t address);

// `row`, which is one of a module that may be unloaded; learnt anew if another one lies there by now.
Row up_to_date(Row row, std::uintptr_t address);

inline Row find_row(Rows* table, std::uintptr_t address) {
  if (!table) [[unlikely]]
    return learn(address);
  for (Slot* slot = &table->first(address);; ++slot) {
    const std::uintptr_t there = slot->address.load(std::memory_order_acquire);
    if (there == address) [[likely]]
      return slot->row.load(std::memory_order_relaxed);
    if (!there) return learn(address);
  }
}

void cache_before_fork();
void cache_after_fork();

}  // namespace cistern::unwind
