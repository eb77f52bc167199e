// See c_library.hpp. What is looked at has been glibc's layout since 2.3: two words before a block, the second its
// size and three flags; arenas of threads in heaps of 64 MiB, so aligned, that begin with what describes them. Where it
// doesn't look like that the C library is asked whether it has a heap at all, which takes it long.
#include "shim/host/c_library.hpp"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "pool/base/page_size.hpp"
#include "pool/heap/layout.hpp"
#include "shim/host/native.hpp"
#include "shim/process/system_filter.hpp"

namespace cistern::host {
namespace {

using host_pool::address_of;

struct Chunk {
  std::size_t before_bytes, bytes_and_flags;

  std::size_t bytes() const { return bytes_and_flags & ~std::size_t{7}; }
  bool has_own_mapping() const { return bytes_and_flags & 2; }
  bool is_of_a_thread() const { return bytes_and_flags & 4; }
};

struct ThreadHeap {
  void* arena;
  ThreadHeap* before;
  std::size_t bytes, writable_bytes;
};
constexpr std::uintptr_t kThreadHeapBytes = std::uintptr_t{64} << 20;

// Up to where the program break was when nobody had asked for memory there.
constinit std::uintptr_t first_break = 0;
// The last heap of a thread that was looked at and is one.
constinit std::atomic<std::uintptr_t> known_heap{0};

bool is_below_break(std::uintptr_t address) {
  return first_break && address >= first_break && address < address_of(sbrk(0));
}

bool lies_in_thread_heap(std::uintptr_t address, std::size_t bytes) {
  const std::uintptr_t begin = address & ~(kThreadHeapBytes - 1);
  const auto* const heap = reinterpret_cast<const ThreadHeap*>(begin);
  if (known_heap.load(std::memory_order_relaxed) != begin && !is_mapped(heap)) return false;
  const bool holds = heap->arena && heap->bytes <= kThreadHeapBytes && heap->bytes <= heap->writable_bytes &&
                     address + bytes <= begin + heap->bytes;
  if (holds) known_heap.store(begin, std::memory_order_relaxed);
  return holds;
}

bool looks_like_a_block(std::uintptr_t address) {
  const auto& chunk = *reinterpret_cast<const Chunk*>(address);
  if (chunk.has_own_mapping())
    return (address - chunk.before_bytes) % page_bytes() == 0 &&
           (chunk.before_bytes + chunk.bytes()) % page_bytes() == 0;
  return chunk.is_of_a_thread() && lies_in_thread_heap(address, chunk.bytes());
}

bool c_library_has_a_heap() {
  if (native().mallinfo2) {
    const struct mallinfo2 heap = native().mallinfo2();
    return heap.arena + heap.hblkhd > 0;
  }
  if (!native().mallinfo) return true;
  const struct mallinfo heap = native().mallinfo();  // before 2.33; sizes of 2 GiB and more wrap
  return heap.arena || heap.hblkhd;
}

}  // namespace

[[gnu::hot]] void note_program_break() { first_break = address_of(sbrk(0)); }

bool is_mapped(const void* pointer) {
  if (system_calls_are_filtered()) return true;
  const int kept_errno = errno;
  unsigned char resident;
  const std::uintptr_t page = page_begin(address_of(pointer));
  const bool mapped = mincore(reinterpret_cast<void*>(page), page_bytes(), &resident) == 0 || errno != ENOMEM;
  errno = kept_errno;
  return mapped;
}

bool c_library_may_own(const void* pointer) {
  if (address_of(pointer) % host_pool::kGranule) return false;
  const std::uintptr_t chunk = address_of(pointer) - sizeof(Chunk);
  if (is_below_break(chunk)) return true;
  return is_mapped(reinterpret_cast<const void*>(chunk)) && (looks_like_a_block(chunk) || c_library_has_a_heap());
}

}  // namespace cistern::host
