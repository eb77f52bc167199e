// A library that comes and goes: it allocates when it is loaded, in its thread-local storage, and frees when it goes.
#include <stdlib.h>
#include <string.h>

static _Thread_local char scratch[5000];
static void* kept[8];

__attribute__((constructor)) static void begin(void) {
  for (int i = 0; i < 8; ++i) kept[i] = malloc(100u << i);
}

__attribute__((destructor)) static void end(void) {
  for (int i = 0; i < 8; ++i) free(kept[i]);
}

// A block of the caller's, filled through the thread's own memory.
void* plugin_block(int value) {
  memset(scratch, value, sizeof scratch);
  void* block = malloc(sizeof scratch);
  if (block) memcpy(block, scratch, sizeof scratch);
  return block;
}
