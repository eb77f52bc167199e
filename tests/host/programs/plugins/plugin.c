// A plugin with a constructor that allocates, and with a function that the program has too.
#include <stdlib.h>
#include <string.h>

static char* made_early;

__attribute__((constructor)) static void constructed(void) {
  free(strdup("by the constructor"));
  made_early = strdup("by the constructor, for later");
}

const char* clash(void) { return "plugin"; }
const char* plugin_clash(void) { return clash(); }
char* plugin_early(void) { return made_early; }
char* plugin_copy(const char* text) { return strdup(text); }
void plugin_free(void* block) { free(block); }
void* plugin_resize(void* block, size_t bytes) { return realloc(block, bytes); }
