// See internal_memory.hpp.
#include "pool/base/internal_memory.hpp"

#include <unistd.h>

#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "pool/base/lock.hpp"
#include "pool/base/own_mapping.hpp"
#include "pool/base/page_size.hpp"

namespace cistern {
namespace {

// Multiples of 16 up to 64 bytes, then four per doubling.
constexpr std::size_t kLargest = 64 << 10;
constexpr unsigned class_of(std::size_t bytes) {
  if (bytes <= 64) return bytes ? static_cast<unsigned>((bytes - 1) / 16) : 0;
  const auto doubling = static_cast<unsigned>(std::bit_width(bytes - 1)) - 1;
  return 4 * (doubling - 5) + static_cast<unsigned>((bytes - 1) >> (doubling - 2) & 3);
}
constexpr std::size_t class_bytes(unsigned id) {
  return id < 4 ? std::size_t{id + 1} * 16 : std::size_t{id % 4 + 5} << (id / 4 + 3);
}
constexpr unsigned kClasses = class_of(kLargest) + 1;
static_assert(class_bytes(class_of(64)) == 64 && class_bytes(class_of(65)) == 80 && class_bytes(class_of(129)) == 160);
static_assert(class_bytes(class_of(kLargest)) == kLargest && class_bytes(class_of(kLargest / 2 + 1)) == 40 << 10);
constexpr std::size_t kChunk = 256 << 10;

struct FreeBlock {
  FreeBlock* next;
};

constinit Lock arena_lock;
constinit FreeBlock* free_lists[kClasses] = {};
constinit char* chunk_next = nullptr;
constinit std::size_t chunk_left = 0;  // no end: that may be where memory of the program begins
// Kept for when the system refuses memory: the program learns of that by a call of its own, and may go on. Mapped with
// the second chunk: few processes need one.
constinit void* spare_chunk = nullptr;
constinit std::atomic<std::size_t> mapped_bytes{0};

[[noreturn]] void die_without_memory() {
  constexpr char kLine[] = "cistern: no memory left for Cistern's own tables\n";
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, kLine, sizeof kLine - 1);
  abort();
}

// What is mapped, a page of entries after another; an entry without bytes is free.
struct Mapped {
  static constexpr std::size_t kEntries = 255;
  Mapped* next;
  std::size_t to_fill_a_page;
  struct {
    std::uintptr_t first;
    std::size_t bytes;
  } entries[kEntries];
};
constinit Mapped all_mapped = {};

// Both under the lock.
void note_mapped(const void* pages, std::size_t bytes) {
  for (Mapped* some = &all_mapped; some; some = some->next) {
    for (auto& entry : some->entries) {
      if (entry.bytes) continue;
      entry = {reinterpret_cast<std::uintptr_t>(pages), bytes};
      return;
    }
    if (!some->next) some->next = static_cast<Mapped*>(map_own_memory(sizeof(Mapped)));
  }
}

void forget_mapped(const void* pages) {
  for (Mapped* some = &all_mapped; some; some = some->next)
    for (auto& entry : some->entries)
      if (entry.first == reinterpret_cast<std::uintptr_t>(pages)) entry = {};
}

// Under the lock, but while a thread forks.
void* map_pages(std::size_t bytes, bool locked) {
  void* const pages = map_own_memory(bytes);
  if (!pages) return nullptr;
  mapped_bytes.fetch_add(bytes, std::memory_order_relaxed);
  if (locked) note_mapped(pages, bytes);
  return pages;
}

struct Taken {
  void* block = nullptr;
  bool is_zero = true;  // as the system gives it, untouched: no memory yet
};

Taken take(std::size_t bytes) {
  const LockedUnlessForking hold(arena_lock);
  if (bytes > kLargest) return {map_pages(whole_pages(bytes), static_cast<bool>(hold))};
  const unsigned id = class_of(bytes);
  const std::size_t size = class_bytes(id);
  if (!hold) return {map_pages(whole_pages(size), false)};
  if (FreeBlock* block = free_lists[id]) {
    free_lists[id] = block->next;
    return {block, false};
  }
  if (chunk_left < size) {
    // The rest of the old chunk is at most one block of the largest class: given up, not tracked.
    const bool is_first = !chunk_next;
    void* chunk = map_pages(kChunk, true);
    if (!chunk) chunk = std::exchange(spare_chunk, nullptr);
    if (!chunk) return {};
    if (!is_first && !spare_chunk) spare_chunk = map_pages(kChunk, true);
    chunk_next = static_cast<char*>(chunk);
    chunk_left = kChunk;
  }
  void* block = chunk_next;
  chunk_next += size;
  chunk_left -= size;
  return {block};
}

}  // namespace

void* internal_try_allocate(std::size_t bytes) { return take(bytes).block; }

void* internal_allocate(std::size_t bytes) {
  void* block = internal_try_allocate(bytes);
  if (!block) die_without_memory();
  return block;
}

void* internal_try_allocate_zeroed(std::size_t bytes) {
  const Taken taken = take(bytes);
  if (!taken.is_zero) std::memset(taken.block, 0, bytes);
  return taken.block;
}

void internal_deallocate(void* block, std::size_t bytes) {
  if (!block) return;
  const LockedUnlessForking hold(arena_lock);
  if (bytes > kLargest) {
    if (hold) forget_mapped(block);
    unmap_own_memory(block, whole_pages(bytes));
    mapped_bytes.fetch_sub(whole_pages(bytes), std::memory_order_relaxed);
    return;
  }
  const unsigned id = class_of(bytes);
  if (!hold) return;
  auto* free_block = static_cast<FreeBlock*>(block);
  free_block->next = free_lists[id];
  free_lists[id] = free_block;
}

void visit_internal_memory(void (*visit)(void* context, std::uintptr_t first, std::size_t bytes), void* context) {
  const auto at = [](const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); };
  for (const Mapped* some = &all_mapped; some; some = some->next) {
    visit(context, at(some), sizeof *some);
    for (const auto& entry : some->entries)
      if (entry.bytes) visit(context, entry.first, entry.bytes);
  }
}

std::size_t internal_mapped_bytes() { return mapped_bytes.load(std::memory_order_relaxed); }

void internal_memory_before_fork() { arena_lock.lock_for_fork(); }
void internal_memory_after_fork() { arena_lock.unlock_after_fork(); }

}  // namespace cistern
