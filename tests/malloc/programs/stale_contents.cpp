// What freed blocks left in memory is no evidence of a double free: blocks that are freed unwritten, and blocks into
// which the contents of such blocks were copied, byte for byte, as copies of structures with padding do.
#include <cstring>
#include <thread>

#include "check.hpp"

namespace {

constexpr int kBlocks = 300;
constexpr size_t kBytes[] = {8, 16, 24, 40, 64, 100, 500, 2000, 5000, 20000, 50000, 200000};

void allocate(void* (&blocks)[kBlocks], size_t bytes) {
  for (void*& block : blocks) REQUIRE((block = malloc(bytes)) != nullptr);
}

void free_all(void* (&blocks)[kBlocks]) {
  for (void* block : blocks) free(block);
}

void free_elsewhere(void* (&blocks)[kBlocks]) {
  std::thread([&] { free_all(blocks); }).join();
}

void round(size_t bytes, bool elsewhere, size_t used) {
  static void *blocks[kBlocks], *others[kBlocks];
  auto release = elsewhere ? free_elsewhere : free_all;
  allocate(blocks, bytes);
  allocate(others, bytes);
  release(blocks);
  allocate(blocks, bytes);  // with what the lists left in them
  for (int i = 0; i < kBlocks; ++i) memcpy(others[i], blocks[(i * 7 + 3) % kBlocks], used);
  for (int i = 0; i < kBlocks; i += 2) memcpy(blocks[i], others[(i + 1) % kBlocks], used);
  release(others);
  allocate(others, bytes);
  // The other way round, and into a block that realloc moves.
  for (int i = 0; i < kBlocks; ++i) memcpy(blocks[i], others[i], used);
  for (void*& block : others) REQUIRE((block = realloc(block, 2 * bytes + 64)) != nullptr);
  for (int i = 0; i < kBlocks; ++i) memcpy(others[i], blocks[kBlocks - 1 - i], used);
  release(blocks);
  release(others);
}

}  // namespace

int main() {
  for (size_t bytes : kBytes) {
    for (bool elsewhere : {false, true}) {
      round(bytes, elsewhere, bytes);
      round(bytes, elsewhere, bytes / 2 + 1);
    }
  }
  printf("stale_contents: no block was taken for another\n");
  return 0;
}
