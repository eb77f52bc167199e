/* Maps an unreadable page behind each new mapping, and allocates in every call about memory: preloaded in front of
 * others, whoever walks a stack beyond its end crashes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE 4096

static void* (*real_mmap)(void*, size_t, int, int, int, off_t);
static int (*real_munmap)(void*, size_t);
static int (*real_madvise)(void*, size_t, int);

__attribute__((constructor)) static void find(void) {
  if (real_mmap) return;
  real_munmap = dlsym(RTLD_NEXT, "munmap");
  real_madvise = dlsym(RTLD_NEXT, "madvise");
  real_mmap = dlsym(RTLD_NEXT, "mmap");
}

static void allocate(void) {
  static _Thread_local int inside __attribute__((tls_model("initial-exec")));
  if (inside) return;
  inside = 1;
  for (size_t bytes = 10; bytes < 100000; bytes *= 10) free(malloc(bytes));
  inside = 0;
}

void* mmap(void* at, size_t bytes, int protection, int flags, int file, off_t offset) {
  find();
  allocate();
  if (at || !(flags & MAP_ANONYMOUS) || bytes % PAGE) return real_mmap(at, bytes, protection, flags, file, offset);
  char* const mapped = real_mmap(at, bytes + PAGE, protection, flags, file, offset);
  if (mapped != MAP_FAILED) mprotect(mapped + bytes, PAGE, PROT_NONE);
  return mapped;
}

int munmap(void* at, size_t bytes) {
  find();
  allocate();
  return real_munmap(at, bytes);
}

int madvise(void* at, size_t bytes, int advice) {
  find();
  allocate();
  return real_madvise(at, bytes, advice);
}
