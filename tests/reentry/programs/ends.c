/* Ends in another thread than the first: `exit` by exit(0), `signal` by SIGTERM. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void* end(void* way) {
  free(malloc(1000));
  if (!strcmp(way, "exit")) exit(0);
  raise(SIGTERM);
  return NULL;
}

int main(int count, char** ways) {
  pthread_t thread;
  if (count != 2 || pthread_create(&thread, NULL, end, ways[1])) return 2;
  pause();
  return 1;
}
