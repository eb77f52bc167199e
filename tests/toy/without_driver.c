/* A program that asks Cistern's C interface for the toy driver's memory in a process without that driver. Prints the
 * answers. */
#define CISTERN_API __attribute__((weak)) /* what is preloaded */
#include <cistern/cistern.h>
#include <stdio.h>

#define KIND ((cistern_kind)100)
#define CONTEXT ((void*)0x1000) /* no code reads it */
#define SHOW(call) printf("%s: %d\n", #call, call)
/* As it is printed: a gate takes names in the tests that begin with CISTERN_ for options. */
#define WRITE CISTERN_WRITE

int main(void) {
  if (!cistern_pool_create) return 2;
  cistern_pool_settings settings = {
      .struct_bytes = sizeof settings, .name = "none", .kind = KIND, .context = (struct _cl_context*)CONTEXT};
  cistern_pool *pool = NULL, *cut = NULL;
  void* block = NULL;
  SHOW(cistern_pool_create(&settings, &pool));
  SHOW(cistern_pool_allocate(pool, 1000, 0, &block));
  settings.memory = CISTERN_SEGMENTS;
  SHOW(cistern_pool_create(&settings, &cut));
  SHOW(cistern_pool_allocate(cut, 1000, 0, &block));
  SHOW(cistern_queue_wait(KIND, 0, CONTEXT));
  cistern_unified_settings both = {.struct_bytes = sizeof both,
                                   .bytes = 1000,
                                   .kind = KIND,
                                   .context = (struct _cl_context*)CONTEXT,
                                   .queue = CONTEXT};
  cistern_unified* buffer = NULL;
  if (cistern_unified_create(&both, &buffer)) return 1;
  SHOW(cistern_unified_device(buffer, 0, 1000, WRITE, NULL, &block));
  SHOW(cistern_pool_destroy(pool));
  return 0;
}
