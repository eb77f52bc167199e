// A library with much thread-local memory and a constructor and a destructor that allocate. Blocks that it gave away
// are freed after it is gone.
#include <stdlib.h>
#include <string.h>

static __thread char large[TLS_BYTES];
static __thread void* of_thread;
static void* from_constructor[20];

__attribute__((constructor)) static void start(void) {
  for (int i = 0; i < 20; ++i) from_constructor[i] = calloc(i + 1, 300);
}

__attribute__((destructor)) static void end(void) {
  free(malloc(70000));
  for (int i = 0; i < 20; ++i) free(from_constructor[i]);
}

// Touches this thread's memory and returns a block for the caller to free; null when the memory was not fresh.
void* use_library(int with) {
  for (int i = 0; i < TLS_BYTES; i += 1000)
    if (large[i]) return NULL;
  if (of_thread) return NULL;
  memset(large, with, sizeof large);
  of_thread = malloc(100);
  free(of_thread);
  of_thread = (void*)1;
  return calloc(1, 5000);
}
