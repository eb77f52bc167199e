/* Allocates for Python programs: blocks of a size that says whose they are, which are never freed. */
#include <pthread.h>
#include <stdlib.h>

/* Not optimised away, nor lost. */
void* volatile kept[1 << 16];

void probe(int number) {
  kept[number] = malloc((size_t)1000000 + (size_t)number * 16);
}

/* A C frame between Python ones. */
void call_back(void (*function)(void)) { function(); }

static void* run(void* function) {
  ((void (*)(void))function)();
  return NULL;
}

/* In a thread that Python did not start. */
void call_in_thread(void (*function)(void)) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, (void*)function)) abort();
  pthread_join(thread, NULL);
}
