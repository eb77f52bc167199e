/* library_pairs LIVE THREADS: for each way of allocating, nanoseconds of the threads' processor time per pair of a
   deallocation and an allocation, with LIVE blocks alive per thread; one line a way: name, mean, 99th percentile over
   batches of 64 pairs. Ways of the library, and what the program calls by itself (pooled where the shim is preloaded).
 */
#define _GNU_SOURCE
#include <cistern/cistern.h>
#include <dlfcn.h>
#include <stdlib.h>

#include "pairs.h"

static int (*device_allocate)(unsigned long long*, size_t);
static int (*device_free)(unsigned long long);
static int (*context_set)(void*);
static void* cuda_context;
static cistern_pool *host_pool, *device_pool, *own_host, *own_device;

static void* plain_take(size_t bytes) { return malloc(bytes); }
static void plain_give(void* block, size_t bytes) {
  (void)bytes;
  free(block);
}
static void* library_take(size_t bytes) { return cistern_allocate(bytes, 0); }
static void library_give(void* block, size_t bytes) {
  (void)bytes;
  cistern_deallocate(block);
}
static void* pool_take(size_t bytes) {
  void* block = NULL;
  cistern_pool_allocate(host_pool, bytes, 0, &block);
  return block;
}
static void pool_give(void* block, size_t bytes) {
  (void)bytes;
  cistern_pool_deallocate(host_pool, block, NULL);
}
static void* own_take(size_t bytes) {
  void* block = NULL;
  cistern_pool_allocate(own_host, bytes, 0, &block);
  return block;
}
static void own_give(void* block, size_t bytes) {
  (void)bytes;
  cistern_pool_deallocate(own_host, block, NULL);
}
static void* driver_take(size_t bytes) {
  unsigned long long block = 0;
  device_allocate(&block, bytes << 10);
  return (void*)block;
}
static void driver_give(void* block, size_t bytes) {
  (void)bytes;
  device_free((unsigned long long)block);
}
static void* device_take(size_t bytes) {
  unsigned long long block = 0;
  cistern_cuda_allocate(bytes << 10, &block);
  return (void*)block;
}
static void device_give(void* block, size_t bytes) {
  (void)bytes;
  cistern_cuda_deallocate((unsigned long long)block);
}
static void* device_pool_take(size_t bytes) {
  void* block = NULL;
  cistern_pool_allocate(device_pool, bytes << 10, 0, &block);
  return block;
}
static void device_pool_give(void* block, size_t bytes) {
  (void)bytes;
  cistern_pool_deallocate(device_pool, block, NULL);
}

static void* own_device_take(size_t bytes) {
  void* block = NULL;
  cistern_pool_allocate(own_device, bytes << 10, 0, &block);
  return block;
}
static void own_device_give(void* block, size_t bytes) {
  (void)bytes;
  cistern_pool_deallocate(own_device, block, NULL);
}

static const struct way kWays[] = {{"malloc", plain_take, plain_give},
                                   {"cistern_allocate", library_take, library_give},
                                   {"cuMemAlloc", driver_take, driver_give},
                                   {"cistern_cuda_allocate", device_take, device_give},
                                   {"host: the process's own pool", own_take, own_give},
                                   {"device: the process's own pool", own_device_take, own_device_give},
                                   {"host pool", pool_take, pool_give},
                                   {"device pool", device_pool_take, device_pool_give},
                                   {"cistern_allocate beside pools", library_take, library_give}};

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

static void make_context_current(void) {
  if (cuda_context) context_set(cuda_context);
}

int main(int count, char** arguments) {
  if (count != 3) return 2;
  live_blocks = atoi(arguments[1]);
  thread_count = atoi(arguments[2]);
  const int has_cuda = start_cuda();
  enter_thread = make_context_current;
  cistern_pool_default(CISTERN_HOST, &own_host);
  cistern_pool_default(CISTERN_DEVICE, &own_device);
  for (size_t way = 0; way < sizeof kWays / sizeof *kWays; ++way) {
    if (kWays[way].give != plain_give && kWays[way].give != library_give && kWays[way].give != pool_give &&
        kWays[way].give != own_give && !has_cuda)
      continue;
    /* Not before: where there is a pool, deallocations without one look whether a block is the pool's. */
    cistern_pool_settings settings = {.struct_bytes = sizeof settings, .name = "bench", .kind = CISTERN_HOST};
    if (kWays[way].take == pool_take) cistern_pool_create(&settings, &host_pool);
    settings.kind = CISTERN_DEVICE;
    if (kWays[way].take == device_pool_take) cistern_pool_create(&settings, &device_pool);
    measure(&kWays[way]);
  }
  return 0;
}
