// A system that refuses to move pages to where others are.
#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

void* mremap(void* old, size_t old_bytes, size_t new_bytes, int flags, ...) {
  (void)old, (void)old_bytes, (void)new_bytes, (void)flags;
  errno = EPERM;
  return MAP_FAILED;
}
