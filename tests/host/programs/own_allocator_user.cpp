// Uses memory in every way, with the allocator of own_allocator.c behind it or without.
#include <malloc.h>
#include <stdlib.h>

#include <cstdio>
#include <string>
#include <vector>

int main() {
  std::vector<std::string> words(50, std::string(50, 'w'));
  void* block = malloc(100);
  const bool sized = malloc_usable_size(block) >= 100;
  block = realloc(block, 1000);
  void* aligned = nullptr;
  const int failed = posix_memalign(&aligned, 256, 10);
  free(aligned);
  free(block);
  free(aligned_alloc(64, 64));
  free(reallocarray(nullptr, 10, 10));
  char* line = nullptr;
  if (asprintf(&line, "%zu words, sized %d, failed %d", words.size(), sized, failed) < 0) return 1;
  std::puts(line);
  free(line);
  return 0;
}
