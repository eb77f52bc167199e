// Another thread than the block's frees it twice.
#include "misuse.h"

static void* twice(void* block) {
  free(block);
  free(block);
  return NULL;
}

int main(void) {
  void* neighbour = malloc(40);
  void* block = about(malloc(40));
  pthread_t thread;
  pthread_create(&thread, NULL, twice, block);
  pthread_join(thread, NULL);
  free(neighbour);
  return 0;
}
