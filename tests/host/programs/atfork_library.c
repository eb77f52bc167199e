// Its handlers allocate around each fork, and one of them waits for a thread to start and end. Registered by the
// constructor of a library that the program links.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

size_t atfork_bytes = 100;
static void* kept[2];

static void* allocate(void* unused) {
  void* volatile block = malloc(atfork_bytes);
  free(block);
  return unused;
}

static void prepare(void) {
  kept[0] = malloc(atfork_bytes);
  memset(kept[0], 1, atfork_bytes);
  pthread_t thread;
  if (pthread_create(&thread, NULL, allocate, NULL) == 0) pthread_join(thread, NULL);
}
static void in_parent(void) { free(kept[0]); }
static void in_child(void) {
  free(kept[0]);
  kept[1] = malloc(atfork_bytes);
  free(kept[1]);
}

__attribute__((constructor)) static void start(void) { pthread_atfork(prepare, in_parent, in_child); }
