// An allocator of its own, of a program or of a library that it links: blocks with a marked header in a static arena. A
// block of another heap that reaches it, or one of its blocks that reaches another heap, ends the process.
// MINIMAL: only what the C library's manual asks of a replacement.
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kHeader = 32, kArena = 64 << 20 };
static const uint64_t kMark = 0x6f776e20626c6f63u;

struct header {
  uint64_t mark;
  size_t bytes;
};

static char arena[kArena] __attribute__((aligned(64)));
static size_t used;

static struct header* header_of(void* block) {
  struct header* header = (struct header*)((char*)block - kHeader);
  if ((char*)block < arena || (char*)block >= arena + kArena || header->mark != kMark) {
    static const char kForeign[] = "a foreign block reached the program's allocator\n";
    if (write(STDERR_FILENO, kForeign, sizeof kForeign - 1) < 0) _exit(4);
    _exit(3);
  }
  return header;
}

static void* take(size_t alignment, size_t bytes) {
  if (alignment < 16) alignment = 16;
  if (bytes > kArena) return errno = ENOMEM, NULL;
  const size_t room = (bytes + kHeader + 2 * alignment + 63) & ~(size_t)63;
  const size_t at = __atomic_fetch_add(&used, room, __ATOMIC_RELAXED);
  if (at + room > kArena) return errno = ENOMEM, NULL;
  const uintptr_t block = ((uintptr_t)arena + at + kHeader + alignment - 1) & ~(uintptr_t)(alignment - 1);
  struct header* header = (struct header*)(block - kHeader);
  header->mark = kMark;
  header->bytes = bytes;
  return (void*)block;
}

void* malloc(size_t bytes) { return take(16, bytes); }
void free(void* block) {
  if (block) header_of(block);
}
void* calloc(size_t count, size_t bytes) { return take(16, count * bytes); }
void* realloc(void* block, size_t bytes) {
  void* moved = take(16, bytes);
  if (!block || !moved) return moved;
  const size_t before = header_of(block)->bytes;
  return memcpy(moved, block, before < bytes ? before : bytes);
}
#ifndef MINIMAL
size_t malloc_usable_size(void* block) { return block ? header_of(block)->bytes : 0; }
void* memalign(size_t alignment, size_t bytes) { return take(alignment, bytes); }
void* aligned_alloc(size_t alignment, size_t bytes) { return take(alignment, bytes); }
int posix_memalign(void** block, size_t alignment, size_t bytes) {
  *block = take(alignment, bytes);
  return *block ? 0 : ENOMEM;
}
void* valloc(size_t bytes) { return take(4096, bytes); }
void* pvalloc(size_t bytes) { return take(4096, bytes); }
#endif
