// A preloaded library that hears, as memory hooks of communication libraries do, when the pages of memory go back to
// the system: its wrappers of the C library's functions tell whoever asked by listen_to_unmaps. Like some of these
// hooks it knows four arguments of mremap.
#define _GNU_SOURCE
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void (*listener)(void* memory, size_t bytes);

void listen_to_unmaps(void (*function)(void* memory, size_t bytes)) { listener = function; }

static void tell(void* memory, size_t bytes) {
  if (listener) listener(memory, bytes);
}

int madvise(void* memory, size_t bytes, int advice) {
  if (advice == MADV_DONTNEED) tell(memory, bytes);
  return (int)syscall(SYS_madvise, memory, bytes, advice);
}

int munmap(void* memory, size_t bytes) {
  tell(memory, bytes);
  return (int)syscall(SYS_munmap, memory, bytes);
}

void* mmap(void* memory, size_t bytes, int protection, int flags, int file, off_t offset) {
  if (flags & MAP_FIXED) tell(memory, bytes);
  return (void*)syscall(SYS_mmap, memory, bytes, protection, flags, file, offset);
}

void* mremap(void* memory, size_t bytes, size_t new_bytes, int flags, ...) {
  tell(memory, bytes);
  return (void*)syscall(SYS_mremap, memory, bytes, new_bytes, flags);
}
