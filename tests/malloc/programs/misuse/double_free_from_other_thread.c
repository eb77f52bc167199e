// The second free comes from another thread.
#include "misuse.h"

static void* second(void* block) {
  free(block);
  return NULL;
}

int main(void) {
  void* neighbour = malloc(40);
  void* block = about(malloc(40));
  free(block);
  pthread_t thread;
  pthread_create(&thread, NULL, second, block);
  pthread_join(thread, NULL);
  free(neighbour);
  return 0;
}
