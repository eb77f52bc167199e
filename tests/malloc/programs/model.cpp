// Random calls in several threads against a model of what is live: a block keeps what was written into it until it is
// freed, whoever frees it, and fresh blocks of calloc are zero. Blocks that overlap spoil each other's contents.
// argv: threads, operations of all threads together, seed.
#include <malloc.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "check.hpp"

namespace {

using check::fail;
using check::Random;

struct Block {
  char* start = nullptr;
  size_t bytes = 0;
  uint64_t tag = 0;      // decides the contents
  bool is_full = false;  // every word was written, not only every now and then one
};

// --- Contents: words at multiples of 8 (all, or one in each stretch), and then the last word, wherever it lies
constexpr size_t kAlwaysFull = 256;

struct Places {
  size_t first, step;
};

Places places(const Block& block) {
  if (block.is_full) return {0, 8};
  const size_t step = block.bytes <= 65536 ? 1024 : 4096;
  return {block.tag % (step / 8) * 8, step};
}

uint64_t word(uint64_t tag, size_t offset) { return (tag + offset) * 0x9e3779b97f4a7c15u; }

void write_contents(const Block& block) {
  if (block.bytes < 8) {
    const uint64_t contents = word(block.tag, 0);
    memcpy(block.start, &contents, block.bytes);
    return;
  }
  auto put = [&](size_t offset) {
    const uint64_t contents = word(block.tag, offset);
    memcpy(block.start + offset, &contents, 8);
  };
  const auto [first, step] = places(block);
  put(0);
  for (size_t offset = first; offset + 8 <= block.bytes; offset += step) put(offset);
  put(block.bytes - 8);
}

// Of the first `kept` bytes of what was the block, now at `start`.
void require_contents(const Block& block, const char* start, size_t kept, const char* when) {
  auto spoiled = [&](size_t offset, uint64_t found, uint64_t expected) {
    fail("%p of %zu bytes%s, %s: at %zu is %llx, written was %llx", static_cast<const void*>(start), block.bytes,
         block.is_full ? " (full)" : "", when, offset, static_cast<unsigned long long>(found),
         static_cast<unsigned long long>(expected));
  };
  if (block.bytes < 8) {
    uint64_t found = 0;
    uint64_t expected = word(block.tag, 0);
    if (kept == 0) return;
    memcpy(&found, start, kept);
    expected &= ~uint64_t{0} >> (64 - 8 * kept);
    if (found != expected) spoiled(0, found, expected);
    return;
  }
  auto look = [&](size_t offset) {
    uint64_t found;
    memcpy(&found, start + offset, 8);
    if (found != word(block.tag, offset)) spoiled(offset, found, word(block.tag, offset));
  };
  const size_t last = block.bytes - 8;  // its word was written over those before
  const auto [first, step] = places(block);
  if (8 <= kept && 8 <= last) look(0);
  for (size_t offset = first; offset + 8 <= kept && offset + 8 <= last; offset += step) look(offset);
  if (block.bytes <= kept) look(last);
}

void require_zero(const char* start, size_t bytes, Random& random) {
  const size_t step = bytes <= 8192 || random.below(16) == 0 ? 8 : 512;
  uint64_t any = 0;
  for (size_t offset = 0; offset + 8 <= bytes; offset += step) {
    uint64_t found;
    memcpy(&found, start + offset, 8);
    any |= found;
  }
  for (size_t offset = bytes < 8 ? 0 : bytes - 8; offset < bytes; ++offset)
    any |= static_cast<unsigned char>(start[offset]);
  if (any) fail("calloc: %p of %zu bytes is not zero", static_cast<const void*>(start), bytes);
}

// --- Sizes: mostly small, and the edges where an allocator changes its mind
size_t near(Random& random, size_t edge, uint32_t reach) { return edge - reach + random.below(2 * reach + 1); }

size_t random_size(Random& random) {
  const uint32_t draw = random.below(100000);
  if (draw < 55000) return random.below(129);
  if (draw < 85000) {  // the edges of classes: four or eight to a doubling
    const size_t doubling = size_t{16} << random.below(8);
    return near(random, doubling + doubling / 8 * random.below(8), 1);
  }
  if (draw < 93000) return 128 + random.below(2048);
  if (draw < 97000) return near(random, size_t{4096} * (1 + random.below(7)), 17);
  if (draw < 98800) return near(random, size_t{32768} * (1 + random.below(3)), 65);
  if (draw < 99600) return near(random, size_t{65536} * (1 + random.below(8)), 4097);
  if (draw < 99990) return near(random, size_t{1} << (18 + random.below(4)), 5000);
  if (draw < 99998) return near(random, size_t{8} << 20, 1 << 20);
  return near(random, size_t{40} << 20, 4 << 20);
}

size_t random_alignment(Random& random) { return size_t{1} << random.below(random.below(8) ? 9 : 22); }

// --- Operations
void finish(Block& block, Random& random) {
  block.tag = random.next();
  block.is_full = block.bytes <= kAlwaysFull || random.below(block.bytes <= 65536 ? 8 : 32) == 0;
  write_contents(block);
}

void allocate(Block& block, Random& random) {
  block.bytes = random_size(random);
  size_t alignment = 16;
  void* start = nullptr;
  const uint32_t draw = random.below(100);
  if (draw < 60) {
    start = malloc(block.bytes);
  } else if (draw < 80) {
    start = calloc(1, block.bytes);
    if (start) require_zero(static_cast<char*>(start), block.bytes, random);
  } else if (draw < 85) {
    start = realloc(nullptr, block.bytes);
  } else {
    alignment = random_alignment(random);
    if (draw < 90) {
      start = memalign(alignment, block.bytes);
    } else if (draw < 95) {
      start = aligned_alloc(alignment, block.bytes);
    } else if (posix_memalign(&start, alignment < 8 ? 8 : alignment, block.bytes)) {
      start = nullptr;
    }
  }
  if (!start) fail("no block of %zu bytes aligned to %zu", block.bytes, alignment);
  if (!check::is_aligned(start, alignment)) fail("%p is not aligned to %zu", start, alignment);
  block.start = static_cast<char*>(start);
  if (random.below(8) == 0) {
    const size_t usable = malloc_usable_size(start);
    if (usable < block.bytes) fail("%zu of %zu bytes usable", usable, block.bytes);
    if (random.below(2)) block.bytes = usable;  // legal, and what some programs do
  }
  finish(block, random);
}

void release(Block& block) {
  require_contents(block, block.start, block.bytes, "before free");
  free(block.start);
  block = {};
}

void resize(Block& block, Random& random) {
  require_contents(block, block.start, block.bytes, "before realloc");
  size_t bytes = random.below(3) ? random_size(random) : block.bytes + random.below(64);
  if (bytes == 0) bytes = 1;
  char* moved = static_cast<char*>(realloc(block.start, bytes));
  if (!moved) fail("no realloc of %zu to %zu bytes", block.bytes, bytes);
  if (!check::is_aligned(moved, 16)) fail("%p of realloc is not aligned", static_cast<void*>(moved));
  require_contents(block, moved, bytes < block.bytes ? bytes : block.bytes, "after realloc");
  block.start = moved;
  block.bytes = bytes;
  finish(block, random);
}

// --- Handing over: a thread swaps one of its places with a common one
struct SharedPlace {
  std::atomic_flag taken;
  Block block;
};
constexpr uint32_t kSharedPlaces = 512;
SharedPlace shared_places[kSharedPlaces];

void hand_over(Block& block, Random& random) {
  SharedPlace& place = shared_places[random.below(kSharedPlaces)];
  if (place.taken.test_and_set(std::memory_order_acquire)) return;  // another thread is at it
  std::swap(place.block, block);
  place.taken.clear(std::memory_order_release);
}

// The model's own memory is not under test.
Block* places_of_a_thread(size_t count) {
  void* memory = mmap(nullptr, count * sizeof(Block), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("no memory for the model");
  return static_cast<Block*>(memory);
}

void run(uint64_t operations, uint64_t seed) {
  constexpr uint32_t kPlaces = 2000;
  Random random(seed);
  Block* const blocks = places_of_a_thread(kPlaces);
  uint32_t in_use = kPlaces;
  for (uint64_t i = 0; i < operations; ++i) {
    // Now few are live, now many: pages run empty and come back.
    if ((i & 0x3fff) == 0) in_use = 20 + random.below(kPlaces - 20);
    Block& block = blocks[random.below(i & 0x2000 ? in_use : kPlaces)];
    const uint32_t draw = random.below(100);
    if (draw < 15) {
      hand_over(block, random);
    } else if (!block.start) {
      allocate(block, random);
    } else if (draw < 70) {
      release(block);
    } else if (draw < 85) {
      resize(block, random);
    } else {
      require_contents(block, block.start, block.bytes, "when touched");
      finish(block, random);
    }
  }
  for (uint32_t i = 0; i < kPlaces; ++i)
    if (blocks[i].start) release(blocks[i]);
  munmap(blocks, kPlaces * sizeof(Block));
}

}  // namespace

int main(int count, char** arguments) {
  const uint64_t threads = check::argument(count, arguments, 1, 2);
  const uint64_t operations = check::argument(count, arguments, 2, 1000000);
  check::seed() = check::argument(count, arguments, 3, 1);
  std::vector<std::thread> running;
  for (uint64_t i = 0; i < threads; ++i) running.emplace_back(run, operations / threads, check::seed() + i * 1000003);
  for (std::thread& thread : running) thread.join();
  for (SharedPlace& place : shared_places)
    if (place.block.start) release(place.block);
  printf("model: %llu operations in %llu threads, seed %llu: contents kept\n",
         static_cast<unsigned long long>(operations), static_cast<unsigned long long>(threads),
         static_cast<unsigned long long>(check::seed()));
  return 0;
}
