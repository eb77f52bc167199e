// An allocator with the fault that the tests here look for: it asks the clock under its one lock. Who allocates in
// clock_gettime waits for himself.
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <time.h>

void* __libc_malloc(size_t bytes);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void* malloc(size_t bytes) {
  struct timespec now;
  pthread_mutex_lock(&lock);
  clock_gettime(CLOCK_MONOTONIC, &now);
  void* block = __libc_malloc(bytes);
  pthread_mutex_unlock(&lock);
  return block;
}
