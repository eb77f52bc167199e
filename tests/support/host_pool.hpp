// The host pool in a test: started as the shim starts it, its live blocks counted as differences (it is one per process
// and others have used it before), its descriptors checked against each other.
#pragma once
#include <pthread.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "pool/heap/account.hpp"
#include "pool/heap/blocks.hpp"
#include "pool/heap/heap.hpp"
#include "pool/heap/region.hpp"
#include "pool/heap/threads.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define CISTERN_TEST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CISTERN_TEST_ASAN 1
#endif
#endif
#ifndef CISTERN_TEST_ASAN
#define CISTERN_TEST_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__)
#define CISTERN_TEST_TSAN 1
#else
#define CISTERN_TEST_TSAN 0
#endif

// The window lies in addresses that AddressSanitizer protects but does not use: there they get a shadow, and the
// window's memory is mapped over them.
#if CISTERN_TEST_ASAN
extern "C" [[gnu::weak, gnu::used]] const char* __asan_default_options() { return "protect_shadow_gap=0"; }
#endif

namespace cistern::test {

// --- Start
// What the pool answered while no window was to be had.
struct PoolStart {
  bool refused_region = false, refused_small = false, refused_large = false, foreign_before = false;
};

// CISTERN_TEST_WINDOWS_REFUSED: so many places for the window are not to be had, so that a smaller one is taken.
inline int windows_to_refuse() {
  const char* wanted = std::getenv("CISTERN_TEST_WINDOWS_REFUSED");
  return wanted ? std::atoi(wanted) : 0;
}

inline bool map_over(void* at, std::size_t bytes) {
  return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == at;
}

inline PoolStart start_host_pool() {
  using namespace host_pool;
  static System real;
  static int refusals;
  PoolStart start;
  real = region_system;
  region_system.describe = [](void*, std::size_t) { return false; };
  start.refused_region = !start_region();
  start.refused_small = !allocate(100);
  start.refused_large = !allocate(100'000);
  start.foreign_before = deallocate(&start) == Freed::foreign && !is_live(&start) && !whereabouts(&start).in_pool;
  refusals = windows_to_refuse();
  static const auto describe = CISTERN_TEST_ASAN ? map_over : real.describe;
  region_system.describe = [](void* at, std::size_t bytes) { return refusals-- <= 0 && describe(at, bytes); };
  if (CISTERN_TEST_ASAN) region_system.map = map_over;
  if (!start_region()) std::abort();
  region_system.describe = describe;
  if (!CISTERN_TEST_TSAN) prepare_thread_ends();
  pthread_atfork(threads_before_fork, threads_after_fork_in_parent, threads_after_fork_in_child);
  return start;
}

inline const PoolStart pool_start = start_host_pool();

// --- Calls, as the shim makes them
// ThreadSanitizer ends its own part of a thread before the pool ends the heap, and dies of the code that runs after it:
// there heaps end with the thread-local objects.
struct EndOfHeap {
  ~EndOfHeap() { host_pool::end_heap(); }
  void touch() {}
};
inline void prepare_end_of_heap() {
  if (!CISTERN_TEST_TSAN) return;
  static thread_local EndOfHeap end;
  end.touch();
}

inline void* get(std::size_t bytes) {
  prepare_end_of_heap();
  void* const block = host_pool::take(bytes);
  return block ? block : host_pool::allocate(bytes);
}
inline host_pool::Freed put(void* block) {
  prepare_end_of_heap();
  return host_pool::give(block) ? host_pool::Freed::yes : host_pool::deallocate(block);
}

// --- Live blocks by usable bytes; large ones under two keys of their own
using Live = std::map<std::size_t, std::int64_t>;
constexpr std::size_t kLargeBlocks = SIZE_MAX, kLargeBytes = SIZE_MAX - 1;

inline void count(Live& live, std::size_t key, std::int64_t more) {
  if (!more) return;
  std::int64_t& value = live[key];
  value += more;
  if (!value) live.erase(key);
}

// `more`: 1 for one that was made, -1 for one that goes. Large blocks may be small, when they are much aligned.
inline void count_block(Live& live, const void* block, int more) {
  const std::size_t usable = host_pool::usable_bytes(block);
  if (host_pool::page_at(static_cast<host_pool::Slice>(host_pool::slice_number(block)))->state !=
      host_pool::PageState::large) {
    count(live, usable, more);
  } else {
    count(live, kLargeBlocks, more);
    count(live, kLargeBytes, more * static_cast<std::int64_t>(usable));
  }
}

inline Live live_now() {
  const host_pool::Account account = host_pool::account();
  Live live;
  for (unsigned id = 0; id < host_pool::kClasses; ++id)
    count(live, host_pool::class_bytes(id), static_cast<std::int64_t>(account.classes[id].live_blocks));
  count(live, kLargeBlocks, static_cast<std::int64_t>(account.large_blocks));
  count(live, kLargeBytes, static_cast<std::int64_t>(account.large_bytes));
  return live;
}

inline Live live_since(const Live& before) {
  Live live = live_now();
  for (const auto& [key, value] : before) count(live, key, -value);
  return live;
}

inline std::uint64_t page_bytes_now() {
  const host_pool::Account account = host_pool::account();
  std::uint64_t sum = 0;
  for (const host_pool::ClassAccount& one : account.classes) sum += one.page_bytes;
  return sum;
}

// --- The region's descriptors; empty: they fit together and to the figures
inline std::string region_fault() {
  using namespace host_pool;
  do_chosen_work();
  const RegionFigures figures = region_figures();
  std::uint64_t free_slices[2] = {}, largest = 0, largest_dirty = 0;
  const Page* before = nullptr;  // the free span that ends right before `at`
  const auto at_slice = [](Slice at, const char* what) {
    return std::string(what) + " at slice " + std::to_string(at);
  };
  for (Slice at = region_begin(); at < region_end();) {
    const Page* const page = page_at(at);
    if (page->state == PageState::free_end) return at_slice(at, "an end without a beginning");
    if (page->state != PageState::free) {
      before = nullptr;
      const bool large = page->state == PageState::large;
      if (large && !page->slices) return at_slice(at, "a large block without slices");
      for (Slice i = 1; large && i < page->slices; ++i)
        if (page_at(at + i)->state != PageState::none) return at_slice(at + i, "a state inside a large block");
      at += large ? page->slices : 1;
      continue;
    }
    const Slice slices = page->slices;
    if (!slices || at + slices > region_end()) return at_slice(at, "a free span of a wrong length");
    if (before && before->sort == page->sort) return at_slice(at, "neighbours that should be one");
    const Page* const last = page_at(at + slices - 1);
    if (last != page &&
        (last->state != PageState::free_end || last->to_first != slices - 1 || last->sort != page->sort))
      return at_slice(at, "a free span with a wrong end");
    for (Slice i = 1; i + 1 < slices; ++i)
      if (page_at(at + i)->state != PageState::none) return at_slice(at + i, "a state inside a free span");
    free_slices[page->sort != 0] += slices;
    if (slices > largest) largest = slices;
    if (page->sort != 0 && slices > largest_dirty) largest_dirty = slices;
    before = page;
    at += slices;
  }
  if (figures.dirty_bytes != free_slices[1] * kSliceBytes) return "dirty_bytes does not fit the spans";
  if (figures.mapped_bytes != figures.in_use_bytes + (free_slices[0] + free_slices[1]) * kSliceBytes)
    return "mapped_bytes does not fit the spans";
  if (figures.largest_free_bytes != largest * kSliceBytes) return "largest_free_bytes does not fit the spans";
  if (figures.largest_dirty_bytes != largest_dirty * kSliceBytes) return "largest_dirty_bytes does not fit the spans";
  if (figures.peak_in_use_bytes < figures.in_use_bytes) return "a peak below what is in use";
  return {};
}

// --- Contents of a block, from a number of its own: all of a small one, a word in each stretch of a large one
inline std::uint64_t word_of(std::uint64_t tag, std::size_t at) { return (tag + at) * 0x9e3779b97f4a7c15u | 1; }

template <class Word>
void each_word(std::size_t bytes, Word word) {
  const std::size_t step = bytes <= 4096 ? 8 : bytes <= 262144 ? 512 : 4096;
  for (std::size_t at = 0; at + 8 <= bytes; at += step) word(at);
}

inline void fill(void* block, std::size_t bytes, std::uint64_t tag) {
  auto* const memory = static_cast<char*>(block);
  each_word(bytes, [&](std::size_t at) {
    const std::uint64_t value = word_of(tag, at);
    std::memcpy(memory + at, &value, 8);
  });
  for (std::size_t at = bytes & ~std::size_t{7}; at < bytes; ++at) memory[at] = static_cast<char>(tag + at);
}

// Of a block that was filled with `bytes`, the first `kept` are there still.
inline bool is_filled(const void* block, std::size_t bytes, std::uint64_t tag, std::size_t kept) {
  const auto* const memory = static_cast<const char*>(block);
  bool same = true;
  each_word(bytes, [&](std::size_t at) {
    const std::uint64_t value = word_of(tag, at);
    if (at < kept) same = same && std::memcmp(memory + at, &value, kept - at < 8 ? kept - at : 8) == 0;
  });
  for (std::size_t at = bytes & ~std::size_t{7}; at < bytes && at < kept; ++at)
    same = same && memory[at] == static_cast<char>(tag + at);
  return same;
}
inline bool is_filled(const void* block, std::size_t bytes, std::uint64_t tag) {
  return is_filled(block, bytes, tag, bytes);
}

inline bool is_zero(const void* block, std::size_t bytes) {
  const auto* const memory = static_cast<const char*>(block);
  return bytes == 0 || (memory[0] == 0 && std::memcmp(memory, memory + 1, bytes - 1) == 0);
}

}  // namespace cistern::test
