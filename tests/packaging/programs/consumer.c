/* What links with libcistern-dev: a pool of host memory with a name and a block of it. */
#include <cistern/cistern.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  cistern_pool* pool = NULL;
  void* block = NULL;
  cistern_pool_settings settings = {.struct_bytes = sizeof settings, .name = "weights", .kind = CISTERN_HOST};
  if (cistern_pool_create(&settings, &pool) != CISTERN_OK) return 1;
  if (cistern_pool_allocate(pool, 1000, 64, &block) != CISTERN_OK) return 2;
  memset(block, 1, 1000);
  if (cistern_pool_deallocate(pool, block, NULL) != CISTERN_OK) return 3;
  if (cistern_pool_destroy(pool) != CISTERN_OK) return 4;
  printf("consumed %s\n", cistern_version());
  return 0;
}
