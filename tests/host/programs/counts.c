// argv[1] rounds of every function that allocates, each in argv[2] threads. One round: 10 births, 9 deaths, 1 failure.
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int rounds = 0;
static volatile size_t huge = PTRDIFF_MAX;

static void one_round(void) {
  void* blocks[9];
  blocks[0] = malloc(10);
  blocks[1] = calloc(10, 10);
  blocks[2] = realloc(NULL, 10);
  blocks[3] = reallocarray(NULL, 10, 10);
  blocks[4] = memalign(64, 100);
  blocks[5] = aligned_alloc(64, 64);
  if (posix_memalign(&blocks[6], 64, 100)) abort();
  blocks[7] = valloc(10);
  blocks[8] = realloc(blocks[0], 3000);  // the same block, in our eyes
  void* volatile kept = malloc(100);
  void* volatile none = malloc(huge);
  if (!kept || none) abort();
  for (int i = 1; i < 9; ++i) free(blocks[i]);
  free(NULL);
  void* gone = malloc(20);
  if (realloc(gone, 0)) abort();
}

static void* in_thread(void* unused) {
  for (int i = 0; i < rounds; ++i) one_round();
  return unused;
}

int main(int count, char** arguments) {
  rounds = count > 1 ? atoi(arguments[1]) : 0;
  const int threads = count > 2 ? atoi(arguments[2]) : 1;
  pthread_t running[64];
  for (int i = 0; i < threads; ++i) pthread_create(&running[i], NULL, in_thread, NULL);
  for (int i = 0; i < threads; ++i) pthread_join(running[i], NULL);
  return 0;
}
