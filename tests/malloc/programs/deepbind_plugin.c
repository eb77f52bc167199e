// A plugin whose own malloc is that of its dependencies, where it is opened with RTLD_DEEPBIND.
#include <stdlib.h>

void* plugin_allocate(size_t bytes) { return malloc(bytes); }
void* plugin_resize(void* block, size_t bytes) { return realloc(block, bytes); }
void plugin_free(void* block) { free(block); }
