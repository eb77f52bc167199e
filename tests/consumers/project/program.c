/* Takes host memory, gives some of it back, some of it twice, and leaves some; prints what was counted meanwhile. */
#include <cistern/cistern.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) void* leave_behind(size_t bytes) {
  void* volatile block = cistern_allocate(bytes, 0);
  return block;
}

int main(void) {
  cistern_statistics before = {.struct_bytes = sizeof before}, after = before;
  if (cistern_get_statistics(CISTERN_HOST, &before)) return 2;
  char* kept = cistern_allocate(100, 64);
  char* given = cistern_allocate(3000, 0);
  if (!kept || !given || (size_t)kept % 64) return 3;
  memset(kept, 1, 100);
  memset(given, 2, 3000);
  if (cistern_deallocate(given) || cistern_deallocate(NULL)) return 4;
  void* const left = leave_behind(5000);
  if (cistern_get_statistics(CISTERN_HOST, &after)) return 5;
  const cistern_status twice = cistern_deallocate(given), inside = cistern_deallocate(kept + 16);
  printf("%d allocations, %d frees, %d live, %s, %s\n", (int)(after.allocations - before.allocations),
         (int)(after.frees - before.frees), (int)(after.live_blocks - before.live_blocks),
         twice == CISTERN_INVALID ? "twice told" : "twice not told",
         inside == CISTERN_INVALID ? "inside told" : "inside not told");
  return left ? 0 : 6;
}
