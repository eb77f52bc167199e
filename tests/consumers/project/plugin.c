/* A plugin with a copy of the library of its own. */
#include <cistern/cistern.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT void* plugin_allocate(size_t bytes) { return cistern_allocate(bytes, 0); }
EXPORT int plugin_deallocate(void* block) { return cistern_deallocate(block); }
EXPORT unsigned long plugin_allocations(void) {
  cistern_statistics figures = {.struct_bytes = sizeof figures};
  return cistern_get_statistics(CISTERN_HOST, &figures) ? 0 : (unsigned long)figures.allocations;
}
