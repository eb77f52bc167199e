/* library_pairs LIVE THREADS: for each way of allocating, nanoseconds of the threads' processor time per pair of a
   deallocation and an allocation, with LIVE blocks alive per thread; one line a way: name, mean, 99th percentile over
   batches of 64 pairs. Ways of the library, and what the program calls by itself (pooled where the shim is preloaded).
 */
#define _GNU_SOURCE
#include <cistern/cistern.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kBatch = 64, kBatches = 1500 };
static int live_blocks, thread_count;
static int (*device_allocate)(unsigned long long*, size_t);
static int (*device_free)(unsigned long long);
static int (*context_set)(void*);
static void* cuda_context;
static cistern_pool *host_pool, *device_pool;

static void* plain_take(size_t bytes) { return malloc(bytes); }
static void plain_give(void* block) { free(block); }
static void* library_take(size_t bytes) { return cistern_allocate(bytes, 0); }
static void library_give(void* block) { cistern_deallocate(block); }
static void* pool_take(size_t bytes) {
  void* block = NULL;
  cistern_pool_allocate(host_pool, bytes, 0, &block);
  return block;
}
static void pool_give(void* block) { cistern_pool_deallocate(host_pool, block, NULL); }
static void* driver_take(size_t bytes) {
  unsigned long long block = 0;
  device_allocate(&block, bytes << 10);
  return (void*)block;
}
static void driver_give(void* block) { device_free((unsigned long long)block); }
static void* device_take(size_t bytes) {
  unsigned long long block = 0;
  cistern_cuda_allocate(&block, bytes << 10);
  return (void*)block;
}
static void device_give(void* block) { cistern_cuda_deallocate((unsigned long long)block); }
static void* device_pool_take(size_t bytes) {
  void* block = NULL;
  cistern_pool_allocate(device_pool, bytes << 10, 0, &block);
  return block;
}
static void device_pool_give(void* block) { cistern_pool_deallocate(device_pool, block, NULL); }

static const struct way {
  const char* name;
  void* (*take)(size_t);
  void (*give)(void*);
} kWays[] = {{"malloc", plain_take, plain_give},
             {"cistern_allocate", library_take, library_give},
             {"cuMemAlloc", driver_take, driver_give},
             {"cistern_cuda_allocate", device_take, device_give},
             {"host pool", pool_take, pool_give},
             {"device pool", device_pool_take, device_pool_give},
             {"cistern_allocate beside pools", library_take, library_give}};

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

static void* run(void* argument) {
  struct work* work = argument;
  if (cuda_context) context_set(cuda_context);
  void** live = malloc(sizeof(void*) * (size_t)live_blocks);
  unsigned seed = work->seed;
  for (int i = 0; i < live_blocks; ++i) live[i] = work->way->take(size_of(&seed));
  for (int batch = 0; batch < kBatches; ++batch) {
    const double began = processor_ns();
    for (int i = 0; i < kBatch; ++i) {
      const int at = (int)((seed >> 8) % (unsigned)live_blocks);
      work->way->give(live[at]);
      live[at] = work->way->take(size_of(&seed));
    }
    work->batches[batch] = (processor_ns() - began) / kBatch;
  }
  for (int i = 0; i < live_blocks; ++i) work->way->give(live[i]);
  free(live);
  return NULL;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void* find(void* driver, const char* name) { return dlsym(driver, name); }

static int start_cuda(void) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!driver) return 0;
  int (*initialise)(unsigned) = (int (*)(unsigned))find(driver, "cuInit");
  int (*retain)(void**, int) = (int (*)(void**, int))find(driver, "cuDevicePrimaryCtxRetain");
  context_set = (int (*)(void*))find(driver, "cuCtxSetCurrent");
  device_allocate = (int (*)(unsigned long long*, size_t))find(driver, "cuMemAlloc_v2");
  device_free = (int (*)(unsigned long long))find(driver, "cuMemFree_v2");
  return !initialise(0) && !retain(&cuda_context, 0) && !context_set(cuda_context);
}

int main(int count, char** arguments) {
  if (count != 3) return 2;
  live_blocks = atoi(arguments[1]);
  thread_count = atoi(arguments[2]);
  const int has_cuda = start_cuda();
  for (size_t way = 0; way < sizeof kWays / sizeof *kWays; ++way) {
    if (kWays[way].give != plain_give && kWays[way].give != library_give && kWays[way].give != pool_give && !has_cuda)
      continue;
    /* Not before: where there is a pool, deallocations without one look whether a block is the pool's. */
    cistern_pool_settings settings = {.size = sizeof settings, .name = "bench", .kind = CISTERN_HOST};
    if (kWays[way].take == pool_take) cistern_pool_create(&settings, &host_pool);
    settings.kind = CISTERN_DEVICE;
    if (kWays[way].take == device_pool_take) cistern_pool_create(&settings, &device_pool);
    struct work* works = calloc((size_t)thread_count, sizeof *works);
    pthread_t threads[64];
    for (int i = 0; i < thread_count; ++i) {
      works[i].way = &kWays[way];
      works[i].seed = (unsigned)i + 1;
      pthread_create(&threads[i], NULL, run, &works[i]);
    }
    double sum = 0, *all = malloc(sizeof(double) * kBatches * (size_t)thread_count);
    for (int i = 0; i < thread_count; ++i) {
      pthread_join(threads[i], NULL);
      memcpy(all + i * kBatches, works[i].batches, sizeof works[i].batches);
      for (int batch = 0; batch < kBatches; ++batch) sum += works[i].batches[batch];
    }
    const size_t batches = (size_t)kBatches * (size_t)thread_count;
    qsort(all, batches, sizeof *all, ascending);
    printf("%s,%.2f,%.2f\n", kWays[way].name, sum / (double)batches, all[batches * 99 / 100]);
    free(all);
    free(works);
  }
  return 0;
}
