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

constexpr std::size_t kSmallest = 16;
constexpr std::size_t kLargest = 64 << 10;
constexpr std::size_t kChunk = 256 << 10;
constexpr int kClasses = std::countr_zero(kLargest) - std::countr_zero(kSmallest) + 1;

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

int class_of(std::size_t bytes) {
  return bytes <= kSmallest ? 0 : static_cast<int>(std::bit_width(bytes - 1)) - std::countr_zero(kSmallest);
}

}  // namespace

void* internal_allocate(std::size_t bytes) {
  void* block = internal_try_allocate(bytes);
  if (!block) die_without_memory();
  return block;
}

void* internal_try_allocate(std::size_t bytes) {
  const LockedUnlessForking hold(arena_lock);
  if (bytes > kLargest) return map_pages(whole_pages(bytes), static_cast<bool>(hold));
  const int id = class_of(bytes);
  const std::size_t size = kSmallest << id;
  if (!hold) return map_pages(whole_pages(size), false);
  if (FreeBlock* block = free_lists[id]) {
    free_lists[id] = block->next;
    return block;
  }
  if (chunk_left < size) {
    // The rest of the old chunk is at most one block of the largest class: given up, not tracked.
    const bool is_first = !chunk_next;
    void* chunk = map_pages(kChunk, true);
    if (!chunk) chunk = std::exchange(spare_chunk, nullptr);
    if (!chunk) return nullptr;
    if (!is_first && !spare_chunk) spare_chunk = map_pages(kChunk, true);
    chunk_next = static_cast<char*>(chunk);
    chunk_left = kChunk;
  }
  void* block = chunk_next;
  chunk_next += size;
  chunk_left -= size;
  return block;
}

void* internal_try_allocate_zeroed(std::size_t bytes) {
  void* const block = internal_try_allocate(bytes);
  if (block && bytes <= kLargest) std::memset(block, 0, bytes);  // larger ones are fresh from the system
  return block;
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
  const int id = class_of(bytes);
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
