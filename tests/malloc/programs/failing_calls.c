// Every way to ask for memory, failing: what it returns, what it leaves in its output and in errno. One line each, to
// be compared with the same program run plain. Sizes that nobody can have, then, under a limit of the address space,
// one that is not to be had.
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { kPreset = 77 };
static void* const kUntouched = (void*)0x1234560;

static const char* of(void* block) { return !block ? "null" : block == kUntouched ? "untouched" : "block"; }

#define ASK(call)                                                                                   \
  do {                                                                                              \
    errno = kPreset;                                                                                \
    void* block = (call);                                                                           \
    const int error = errno;                                                                        \
    printf("%s bytes=%zx alignment=%zx: %s errno %d\n", #call, bytes, alignment, of(block), error); \
    free(block);                                                                                    \
  } while (0)

static void with(size_t alignment, size_t bytes) {
  ASK(memalign(alignment, bytes));
  ASK(aligned_alloc(alignment, bytes));
  void* block = kUntouched;
  errno = kPreset;
  const int result = posix_memalign(&block, alignment, bytes);
  const int error = errno;
  printf("posix_memalign bytes=%zx alignment=%zx: %d %s errno %d\n", bytes, alignment, result, of(block), error);
  if (result == 0) free(block);
}

static void each(size_t bytes) {
  const size_t alignment = 0;
  ASK(malloc(bytes));
  ASK(calloc(1, bytes));
  ASK(calloc(bytes, 3));
  ASK(realloc(NULL, bytes));
  ASK(reallocarray(NULL, bytes, 1));
  ASK(reallocarray(NULL, 3, bytes));
  ASK(valloc(bytes));
  ASK(pvalloc(bytes));
  const size_t held[] = {1, 5000, 100000, 3 << 20};
  for (unsigned i = 0; i < sizeof held / sizeof *held; ++i) {
    char* volatile kept = malloc(held[i]);
    char* block = kept;
    block[0] = 5, block[held[i] - 1] = 6;
    errno = kPreset;
    void* moved = realloc(block, bytes);
    printf("realloc of %zx to %zx: %s errno %d\n", held[i], bytes, of(moved), errno);
    errno = kPreset;
    moved = reallocarray(kept, bytes, 1);
    printf("reallocarray of %zx to %zx: %s errno %d\n", held[i], bytes, of(moved), errno);
    printf("kept: %d %d\n", kept[0], kept[held[i] - 1]);
    free(kept);
  }
  for (size_t align = 8; align <= (size_t)1 << 24; align *= 8) with(align, bytes);
  const size_t odd[] = {0, 1, 3, 7, 12, 24, 4097, (SIZE_MAX >> 1) + 1, (SIZE_MAX >> 1) + 2, SIZE_MAX};
  for (unsigned i = 0; i < sizeof odd / sizeof *odd; ++i) {
    // A sum that wraps: glibc before 2.43 may write to no memory (failure_matrix has it).
    if (bytes <= PTRDIFF_MAX && bytes > ((size_t)1 << 62) && odd[i] == (size_t)1 << 63) continue;
    with(odd[i], bytes);
  }
}

int main(void) {
  setvbuf(stdout, NULL, _IONBF, 0);
  const size_t never[] = {SIZE_MAX,
                          SIZE_MAX - 4095,
                          SIZE_MAX - 65536,
                          (size_t)PTRDIFF_MAX + 1,
                          (size_t)PTRDIFF_MAX,
                          (size_t)PTRDIFF_MAX - 65536,
                          (size_t)1 << 56};
  for (unsigned i = 0; i < sizeof never / sizeof *never; ++i) each(never[i]);
  // Alignments that are refused, or rounded up, whatever the size.
  const size_t odd[] = {0, 1, 3, 7, 12, 24, 4097, (SIZE_MAX >> 1) + 2, SIZE_MAX};
  for (unsigned i = 0; i < sizeof odd / sizeof *odd; ++i) with(odd[i], 100);
  FILE* null = fopen("/dev/null", "w");
  errno = kPreset;
  const int info = malloc_info(1, null);
  printf("malloc_info: %d errno %d\n", info, errno);
  fclose(null);
  errno = kPreset;
  const int set = mallopt(-1000, 1), arena = mallopt(M_MXFAST, INT_MAX);
  printf("mallopt: %d %d errno %d\n", set, arena, errno);
  const struct rlimit limit = {(rlim_t)2 << 30, (rlim_t)2 << 30};
  if (setrlimit(RLIMIT_AS, &limit) != 0) return 1;
  each((size_t)5 << 30);
  return 0;
}
