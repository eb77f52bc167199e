// See internal_memory.hpp.
#include "pool/base/internal_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cstdlib>

#include "pool/base/lock.hpp"

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
constinit char* chunk_end = nullptr;
constinit std::atomic<std::size_t> mapped_bytes{0};

[[noreturn]] void die_without_memory() {
  constexpr char kLine[] = "cistern: no memory left for the shim's own tables\n";
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, kLine, sizeof kLine - 1);
  abort();
}

void* map_pages(std::size_t bytes) {
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  mapped_bytes.fetch_add(bytes, std::memory_order_relaxed);
  return pages;
}

std::size_t page_rounded(std::size_t bytes) { return (bytes + 4095) & ~std::size_t{4095}; }

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
  if (bytes > kLargest) return map_pages(page_rounded(bytes));
  const int id = class_of(bytes);
  const std::size_t size = kSmallest << id;
  const LockedUnlessForking hold(arena_lock);
  if (!hold) return map_pages(page_rounded(size));
  if (FreeBlock* block = free_lists[id]) {
    free_lists[id] = block->next;
    return block;
  }
  if (static_cast<std::size_t>(chunk_end - chunk_next) < size) {
    // The rest of the old chunk is at most one block of the largest class: given up, not tracked.
    void* chunk = map_pages(kChunk);
    if (!chunk) return nullptr;
    chunk_next = static_cast<char*>(chunk);
    chunk_end = chunk_next + kChunk;
  }
  void* block = chunk_next;
  chunk_next += size;
  return block;
}

void internal_deallocate(void* block, std::size_t bytes) {
  if (!block) return;
  if (bytes > kLargest) {
    munmap(block, page_rounded(bytes));
    mapped_bytes.fetch_sub(page_rounded(bytes), std::memory_order_relaxed);
    return;
  }
  const int id = class_of(bytes);
  const LockedUnlessForking hold(arena_lock);
  if (!hold) return;
  auto* free_block = static_cast<FreeBlock*>(block);
  free_block->next = free_lists[id];
  free_lists[id] = free_block;
}

std::size_t internal_mapped_bytes() { return mapped_bytes.load(std::memory_order_relaxed); }

void internal_memory_before_fork() { arena_lock.lock_for_fork(); }
void internal_memory_after_fork() { arena_lock.unlock_after_fork(); }

}  // namespace cistern
