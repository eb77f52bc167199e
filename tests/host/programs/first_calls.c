// Threads make the process's first calls of the C library's own malloc at the same time: requests that no pool serves.
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

enum { kThreads = 8 };
static pthread_barrier_t begin;
static volatile size_t huge = PTRDIFF_MAX;

static void* in_thread(void* unused) {
  pthread_barrier_wait(&begin);
  void* volatile none = malloc(huge);
  if (none) abort();
  return unused;
}

int main(void) {
  pthread_t threads[kThreads];
  pthread_barrier_init(&begin, NULL, kThreads);
  for (int i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, in_thread, NULL);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  return 0;
}
