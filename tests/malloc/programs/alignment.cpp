// Aligned blocks of every power of two up to 1 GiB: aligned, wholly writable to the last usable byte, kept while others
// come and go, and kept by realloc. argv: seed.
#include <malloc.h>

#include <cstring>
#include <vector>

#include "check.hpp"

namespace {

using check::fail;
using check::Random;

constexpr size_t kLargestAlignment = size_t{1} << 30;
constexpr size_t kReach = 65536;

struct Block {
  char* start;
  size_t asked;
  size_t usable;
  size_t filled;  // and the last usable byte
  size_t alignment;
  unsigned char fill;
};

void* request(Random& random, size_t alignment, size_t bytes) {
  switch (random.below(3)) {
    case 0:
      return memalign(alignment, bytes);
    case 1:
      return aligned_alloc(alignment, bytes);
    default: {
      void* block = nullptr;
      if (posix_memalign(&block, alignment < 8 ? 8 : alignment, bytes)) return nullptr;
      return block;
    }
  }
}

Block make(Random& random, size_t alignment, size_t bytes) {
  char* start = static_cast<char*>(request(random, alignment, bytes));
  if (!start) fail("no block of %zu aligned to %zu", bytes, alignment);
  if (!check::is_aligned(start, alignment)) fail("%p is not aligned to %zu", static_cast<void*>(start), alignment);
  const size_t usable = malloc_usable_size(start);
  if (usable < bytes) fail("%zu of %zu usable, aligned to %zu", usable, bytes, alignment);
  // glibc lets a block use what is left of its mapping: half a GiB that is not to be touched.
  const Block block{start,     bytes,
                    usable,    usable < bytes + kReach ? usable : bytes + kReach,
                    alignment, static_cast<unsigned char>(random.next())};
  memset(start, block.fill, block.filled);
  memset(start + usable - 1, block.fill, 1);
  return block;
}

void require_contents(const Block& block, const char* start, size_t bytes, const char* when) {
  for (size_t i = 0; i < bytes; ++i)
    if (static_cast<unsigned char>(start[i]) != block.fill)
      fail("%p, %zu aligned to %zu: byte %zu changed %s", static_cast<const void*>(start), block.asked, block.alignment,
           i, when);
}

void end(Random& random, const Block& block) {
  require_contents(block, block.start, block.filled, "while others came and went");
  if (static_cast<unsigned char>(block.start[block.usable - 1]) != block.fill) fail("the last usable byte changed");
  if (random.below(3)) return free(block.start);
  const size_t bytes = 1 + random.below(static_cast<uint32_t>(2 * block.filled + 100));
  char* moved = static_cast<char*>(realloc(block.start, bytes));
  if (!moved) fail("no realloc of %zu aligned to %zu to %zu", block.asked, block.alignment, bytes);
  require_contents(block, moved, bytes < block.filled ? bytes : block.filled, "in realloc");
  if (malloc_usable_size(moved) < bytes) fail("realloc: %zu of %zu usable", malloc_usable_size(moved), bytes);
  memset(moved, 0, bytes);
  free(moved);
}

void small_and_medium(Random& random) {
  std::vector<Block> live;
  for (size_t alignment = 1; alignment <= size_t{1} << 16; alignment *= 2) {
    for (size_t size = 1; size <= size_t{64} << 10; size *= 2) {
      for (size_t bytes : {size - 1, size, size + 1, size + size / 2}) {
        live.push_back(make(random, alignment, bytes ? bytes : 1));
        if (live.size() < 200) continue;
        const size_t victim = random.below(static_cast<uint32_t>(live.size()));
        end(random, live[victim]);
        live[victim] = live.back();
        live.pop_back();
      }
    }
  }
  for (const Block& block : live) end(random, block);
}

void large(Random& random) {
  for (size_t alignment = 1; alignment <= kLargestAlignment; alignment *= 2) {
    std::vector<Block> live;
    for (size_t bytes : {size_t{1}, size_t{4096}, size_t{100000}, size_t{1} << 20, (size_t{3} << 20) + 5})
      live.push_back(make(random, alignment, bytes));
    void* between = malloc(200000);
    memset(between, 0, 200000);
    for (const Block& block : live) end(random, block);
    free(between);
  }
}

}  // namespace

int main(int count, char** arguments) {
  check::seed() = check::argument(count, arguments, 1, 1);
  Random random(check::seed());
  small_and_medium(random);
  large(random);
  printf("alignment: holds, seed %llu\n", static_cast<unsigned long long>(check::seed()));
  return 0;
}
