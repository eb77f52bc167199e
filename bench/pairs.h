/* The loop of library_pairs.c and library_rmm.cpp: pairs of a deallocation and an allocation at random, with
   live_blocks alive per thread; one line of nanoseconds of the threads' processor time per pair: name, mean, 99th
   percentile over batches of 64 pairs. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kBatch = 64, kBatches = 1500 };
static int live_blocks, thread_count;
static void (*enter_thread)(void);

struct way {
  const char* name;
  void* (*take)(size_t);
  void (*give)(void*, size_t);
};

static double processor_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

struct work {
  const struct way* way;
  unsigned seed;
  double batches[kBatches];
};

static size_t size_of(unsigned* seed) { return 16 + (*seed = *seed * 1664525u + 1013904223u) % 32 * 16; }

struct block {
  void* address;
  size_t bytes;
};

static void take_one(const struct way* way, struct block* block, unsigned* seed) {
  block->bytes = size_of(seed);
  block->address = way->take(block->bytes);
}

static void* run(void* argument) {
  struct work* work = (struct work*)argument;
  if (enter_thread) enter_thread();
  struct block* live = (struct block*)malloc(sizeof *live * (size_t)live_blocks);
  unsigned seed = work->seed;
  for (int i = 0; i < live_blocks; ++i) take_one(work->way, &live[i], &seed);
  for (int batch = 0; batch < kBatches; ++batch) {
    const double began = processor_ns();
    for (int i = 0; i < kBatch; ++i) {
      const int at = (int)((seed >> 8) % (unsigned)live_blocks);
      work->way->give(live[at].address, live[at].bytes);
      take_one(work->way, &live[at], &seed);
    }
    work->batches[batch] = (processor_ns() - began) / kBatch;
  }
  for (int i = 0; i < live_blocks; ++i) work->way->give(live[i].address, live[i].bytes);
  free(live);
  return NULL;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void measure(const struct way* way) {
  struct work* works = (struct work*)calloc((size_t)thread_count, sizeof *works);
  pthread_t threads[64];
  for (int i = 0; i < thread_count; ++i) {
    works[i].way = way;
    works[i].seed = (unsigned)i + 1;
    pthread_create(&threads[i], NULL, run, &works[i]);
  }
  double sum = 0, *all = (double*)malloc(sizeof(double) * kBatches * (size_t)thread_count);
  for (int i = 0; i < thread_count; ++i) {
    pthread_join(threads[i], NULL);
    memcpy(all + i * kBatches, works[i].batches, sizeof works[i].batches);
    for (int batch = 0; batch < kBatches; ++batch) sum += works[i].batches[batch];
  }
  const size_t batches = (size_t)kBatches * (size_t)thread_count;
  qsort(all, batches, sizeof *all, ascending);
  printf("%s,%.2f,%.2f\n", way->name, sum / (double)batches, all[batches * 99 / 100]);
  free(all);
  free(works);
}
