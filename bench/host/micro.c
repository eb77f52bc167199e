// Loops as tight as they get, for instruction counts and nanoseconds of one malloc and one free:
//   host_micro pair|fifo|lifo|pass BYTES ROUNDS
// pair frees what it just allocated, fifo what it allocated a thousand rounds ago, lifo a thousand blocks once it has
// them all, the newest first, pass what another thread allocated.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kLive = 1000, kRing = 16384, kBatch = 2048 };

// One byte is written, so that the block's line is touched; built without built-in malloc, so that no pair is dropped.
static void pair(size_t bytes, size_t rounds) {
  for (size_t round = 0; round < rounds; ++round) {
    char* block = malloc(bytes);
    *block = 1;
    free(block);
  }
}

static void fifo(size_t bytes, size_t rounds) {
  static char* live[kLive];
  for (size_t round = 0; round < rounds; round += kLive) {
    for (size_t at = 0; at < kLive; ++at) {
      free(live[at]);
      *(live[at] = malloc(bytes)) = 1;
    }
  }
}

static void lifo(size_t bytes, size_t rounds) {
  static char* live[kLive];
  for (size_t round = 0; round < rounds; round += kLive) {
    for (size_t at = 0; at < kLive; ++at) *(live[at] = malloc(bytes)) = 1;
    for (size_t at = kLive; at-- > 0;) free(live[at]);
  }
}

static char* ring[kRing];
static sem_t room, filled;

// Two threads that shared one core would not show what the blocks cost on their way.
static void keep_to_core(int core) {
  cpu_set_t chosen;
  CPU_ZERO(&chosen);
  CPU_SET(core, &chosen);
  sched_setaffinity(0, sizeof chosen, &chosen);
}

static void* consume(void* rounds) {
  keep_to_core(1);
  for (size_t at = 0; at < (size_t)(uintptr_t)rounds; ++at) {
    if (at % kBatch == 0) sem_wait(&filled);
    free(ring[at % kRing]);
    if (at % kBatch == kBatch - 1) sem_post(&room);
  }
  return NULL;
}

// Whole batches, and each side waits in the kernel, so that the CPU time is that of the work.
static void pass(size_t bytes, size_t rounds) {
  rounds -= rounds % kBatch;
  sem_init(&room, 0, kRing / kBatch);
  sem_init(&filled, 0, 0);
  pthread_t consumer;
  if (pthread_create(&consumer, NULL, consume, (void*)(uintptr_t)rounds) != 0) abort();
  keep_to_core(0);
  for (size_t at = 0; at < rounds; ++at) {
    if (at % kBatch == 0) sem_wait(&room);
    *(ring[at % kRing] = malloc(bytes)) = 1;
    if (at % kBatch == kBatch - 1) sem_post(&filled);
  }
  pthread_join(consumer, NULL);
}

int main(int count, char** arguments) {
  if (count == 4) {
    const size_t bytes = strtoull(arguments[2], NULL, 10), rounds = strtoull(arguments[3], NULL, 10);
    void (*loop)(size_t, size_t) = strcmp(arguments[1], "pair") == 0   ? pair
                                   : strcmp(arguments[1], "fifo") == 0 ? fifo
                                   : strcmp(arguments[1], "lifo") == 0 ? lifo
                                   : strcmp(arguments[1], "pass") == 0 ? pass
                                                                       : NULL;
    if (loop != NULL && bytes > 0) {
      loop(bytes, rounds);
      return 0;
    }
  }
  fprintf(stderr, "host_micro pair|fifo|lifo|pass BYTES ROUNDS\n");
  return 2;
}
