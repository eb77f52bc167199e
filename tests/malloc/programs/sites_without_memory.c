// Fills the address space it may have, down to small blocks, and then goes on from thousands of call sites that are
// new: each frees a block and allocates one of its size, large enough to be a sample each time.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { kBlocks = 100000, kLarge = 600000, kDepth = 12, kSites = 1 << kDepth };
static void* blocks[kBlocks];

static void* one(int path, int depth);
__attribute__((noinline)) static void* zero(int path, int depth) {
  void* volatile block = depth == 0 ? malloc(kLarge)
                         : path & 1 ? one(path >> 1, depth - 1)
                                    : zero(path >> 1, depth - 1);
  return block;
}
__attribute__((noinline)) static void* one(int path, int depth) {
  void* volatile block = depth == 0 ? malloc(kLarge)
                         : path & 1 ? one(path >> 1, depth - 1)
                                    : zero(path >> 1, depth - 1);
  return block;
}

int main(void) {
  const struct rlimit limit = {400u << 20, 400u << 20};
  if (setrlimit(RLIMIT_AS, &limit) != 0) return 2;
  const size_t sizes[] = {kLarge, 30000, 2000, 16};
  int count = 0, large = 0;
  for (int i = 0; i < 4; ++i) {
    for (void* block; count < kBlocks && (block = malloc(sizes[i])); ++count) blocks[count] = block;
    if (i == 0) large = count;
  }
  if (large < 100) return 3;
  for (int path = 0; path < kSites; ++path) {
    void** const block = &blocks[path % 20];
    free(*block);
    *block = zero(path, kDepth);
    if (!*block && errno != ENOMEM) return 4;
  }
  puts("ok");
  return 0;
}
