/* A program that uses the toy driver's memory through Cistern's C interface, as it would that of any kind: a pool, work
 * on a queue, a transfer, a buffer on both sides, a file. The driver's context is the queue, too. Prints what it
 * sees. */
#include "toy.h"

#define CISTERN_API __attribute__((weak)) /* what is preloaded */
#include <cistern/cistern.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIND ((cistern_kind)100)
#define SHOW(call) printf("%s: %d\n", #call, call)
#define NO_BLOCK ((void*)0x1000)
/* As they are printed: a gate takes names in the tests that begin with CISTERN_ for options. */
#define READ CISTERN_READ
#define WRITE CISTERN_WRITE
#define OVERWRITE CISTERN_OVERWRITE
#define SEGMENTS CISTERN_SEGMENTS
enum { BYTES = 100000, ALL = 64 << 20 };

static toy_context* context;
static struct _cl_context* given_context;
static char host[BYTES], back[BYTES];

static cistern_pool* new_pool(void) {
  cistern_pool_settings settings = {
      .struct_bytes = sizeof settings, .name = "toys", .kind = KIND, .bytes_max = 1 << 20};
  cistern_pool* pool = NULL;
  SHOW(cistern_pool_create(&settings, &pool)); /* without a context */
  settings.context = given_context;
  SHOW(cistern_pool_create(&settings, &pool));
  return pool;
}

static void use_pool(cistern_pool* pool) {
  void *block = NULL, *other = NULL;
  SHOW(cistern_pool_allocate(pool, 2 << 20, 0, &other)); /* more than its limit */
  SHOW(cistern_pool_allocate(pool, BYTES, 0, &block));
  SHOW(cistern_pool_deallocate(pool, block, NULL));
  SHOW(cistern_pool_allocate(pool, BYTES, 0, &block));
  SHOW(cistern_pool_allocate(pool, 1000, 4096, &other));
  printf("aligned: %d\n", (uintptr_t)other % 4096 == 0);
  SHOW(cistern_pool_deallocate(pool, NO_BLOCK, NULL));
  SHOW(cistern_pool_reallocate(pool, &block, 50, NULL)); /* without a queue */
  memcpy(block, "kept", 5);
  SHOW(cistern_pool_reallocate(pool, &block, 2 * BYTES, context));
  printf("%s\n", (char*)block);
  SHOW(cistern_pool_deallocate(pool, block, NULL));
  SHOW(cistern_pool_deallocate(pool, other, NULL));
  cistern_pool_statistics seen = {.struct_bytes = sizeof seen};
  SHOW(cistern_pool_get_statistics(pool, &seen));
  printf("%d allocations, %d of kept memory, %d live\n", (int)seen.allocations, (int)seen.pool_hits,
         (int)seen.live_blocks);
}

/* A block that went back a moment ago is kept: it is part of the cache. */
static void defragment(cistern_pool* pool) {
  void* block = NULL;
  unsigned before = 0, after = 0;
  SHOW(cistern_pool_allocate(pool, BYTES, 0, &block));
  SHOW(cistern_pool_deallocate(pool, block, NULL));
  toy_calls(context, &before);
  SHOW(cistern_defragment(KIND, NULL));
  SHOW(cistern_pool_allocate(pool, BYTES, 0, &block));
  toy_calls(context, &after);
  printf("%u allocations of the driver\n", after - before);
  SHOW(cistern_pool_deallocate(pool, block, NULL));
}

/* The blocks of this pool are the program's own as well. */
static void use_default_pool(void) {
  cistern_pool* pool = NULL;
  SHOW(cistern_pool_default(KIND, &pool));
  cistern_request request = {.struct_bytes = sizeof request, .bytes = BYTES};
  void* block = NULL;
  SHOW(cistern_pool_allocate_as(pool, &request, &block)); /* without a context */
  request.context = given_context;
  SHOW(cistern_pool_allocate_as(pool, &request, &block));
  SHOW(toy_free(context, block));
  SHOW(toy_allocate(context, BYTES, &block));
  SHOW(cistern_pool_deallocate(pool, block, NULL));
  SHOW(cistern_pool_deallocate(pool, NO_BLOCK, NULL));
  printf("driver's code: %d\n", cistern_native_error());
  SHOW(cistern_pool_reserve(pool, BYTES, 1)); /* it has no such function */
  cistern_figures figures = {.struct_bytes = sizeof figures};
  SHOW(cistern_get_figures(KIND, 0, &figures));
  SHOW(cistern_get_figures(KIND, 1, &figures));
  printf("%d live\n", (int)figures.live_blocks);
}

static void use_queue(cistern_pool* pool) {
  void* block = NULL;
  toy_context* other = NULL;
  if (toy_context_create(&other)) return;
  SHOW(cistern_pool_allocate(pool, BYTES, 0, &block));
  const size_t known = sizeof(cistern_part);
  const cistern_part on_device = {known, KIND, block, 0}, on_host = {known, CISTERN_HOST, back, 0};
  const cistern_part cuda = {known, CISTERN_DEVICE, host, 0};
  SHOW(cistern_enqueue_fill(&on_device, "abc", 3, 10, 0, context));
  SHOW(cistern_enqueue_copy(&on_host, &on_device, 10, 0, context));
  SHOW(cistern_enqueue_copy(&on_device, &cuda, 10, 0, context));
  SHOW(cistern_enqueue_copy(&on_host, &on_device, 10, 0, NULL));
  SHOW(cistern_queue_follow(KIND, 0, context, other));
  SHOW(cistern_queue_wait(KIND, 0, context));
  SHOW(cistern_queue_wait(KIND, 0, NULL));
  printf("%.10s\n", back);
  SHOW(cistern_pool_deallocate(pool, block, NULL));
  toy_context_destroy(other);
}

static void use_transfer(cistern_pool* pool) {
  cistern_transfer_settings settings = {.struct_bytes = sizeof settings};
  cistern_transfer* transfer = NULL;
  void* block = NULL;
  SHOW(cistern_pool_allocate(pool, BYTES, 0, &block));
  SHOW(cistern_transfer_create(&settings, &transfer));
  memset(host, 7, BYTES);
  cistern_copy_request up = {.struct_bytes = sizeof up, .bytes = BYTES, .target = block, .source = host};
  cistern_copy_request down = {.struct_bytes = sizeof down, .bytes = BYTES, .target = back, .source = block};
  SHOW(cistern_transfer_add(transfer, &up, NULL));
  SHOW(cistern_transfer_wait(transfer, -1));
  SHOW(cistern_transfer_add(transfer, &down, NULL));
  SHOW(cistern_transfer_wait(transfer, -1));
  printf("the same: %d\n", !memcmp(host, back, BYTES));
  SHOW(cistern_transfer_destroy(transfer));
  SHOW(cistern_pool_deallocate(pool, block, NULL));
}

static void use_buffer(void) {
  cistern_unified_settings settings = {
      .struct_bytes = sizeof settings, .bytes = BYTES, .kind = KIND, .context = given_context};
  cistern_unified* buffer = NULL;
  void *here = NULL, *there = NULL;
  SHOW(cistern_unified_create(&settings, &buffer)); /* without a queue */
  settings.queue = context;
  SHOW(cistern_unified_create(&settings, &buffer));
  SHOW(cistern_unified_host(buffer, 0, BYTES, OVERWRITE, &here));
  memcpy(here, "from the host", 14);
  SHOW(cistern_unified_device(buffer, 5, 9, WRITE, NULL, &there));
  printf("%s\n", (char*)there);
  memcpy(there, "a toy has", 9);
  SHOW(cistern_unified_host(buffer, 0, BYTES, READ, &here));
  printf("%s\n", (char*)here);
  cistern_state state;
  SHOW(cistern_unified_get_state(buffer, &state));
  printf("state %d\n", state);
  SHOW(cistern_unified_destroy(buffer));
}

static void use_file(const char* path) {
  cistern_mapped_settings settings = {.struct_bytes = sizeof settings,
                                      .path = path,
                                      .chunk_bytes = 4096,
                                      .kind = KIND,
                                      .context = given_context,
                                      .queue = context,
                                      .writable = 1,
                                      .bytes = 10000};
  cistern_mapped* file = NULL;
  void* chunk = NULL;
  size_t bytes = 0;
  SHOW(cistern_mapped_open(&settings, &file));
  SHOW(cistern_mapped_acquire(file, 2, WRITE, context, &chunk, &bytes));
  memcpy((char*)chunk + bytes - 4, "end", 4);
  SHOW(cistern_mapped_release(file, 2, context));
  SHOW(cistern_mapped_close(file));
  printf("%zu bytes in the last chunk\n", bytes);
}

/* Segments of the pool's own, cut into blocks. The driver knows none of the blocks. */
static cistern_pool* use_segments(void) {
  cistern_pool_settings settings = {.struct_bytes = sizeof settings, .name = "cut", .kind = KIND, .memory = SEGMENTS};
  settings.context = given_context;
  cistern_pool* pool = NULL;
  void* blocks[100] = {NULL};
  unsigned before = 0, after = 0;
  toy_calls(context, &before);
  SHOW(cistern_pool_create(&settings, &pool));
  for (int i = 0; i < 100; ++i) cistern_pool_allocate(pool, 1000 + 100 * (size_t)i, 0, &blocks[i]);
  toy_calls(context, &after);
  printf("100 blocks of %u allocations\n", after - before);
  memset(blocks[7], 7, 1700);
  SHOW(toy_free(context, blocks[7]));
  SHOW(cistern_pool_deallocate(pool, NO_BLOCK, NULL));
  for (int i = 0; i < 99; ++i) cistern_pool_deallocate(pool, blocks[i], i % 2 ? context : NULL);
  SHOW(cistern_pool_allocate(pool, 5000, 4096, &blocks[0]));
  printf("aligned: %d\n", (uintptr_t)blocks[0] % 4096 == 0);
  SHOW(cistern_pool_reallocate(pool, &blocks[0], 70000, context));
  SHOW(cistern_pool_deallocate(pool, blocks[0], NULL));
  SHOW(cistern_pool_destroy(pool)); /* the last of the hundred is alive */
  cistern_pool_statistics seen = {.struct_bytes = sizeof seen};
  SHOW(cistern_pool_get_statistics(pool, &seen));
  printf("%d allocations, %d segments\n", (int)seen.allocations, (int)seen.segments_made);
  size_t returned = 0;
  SHOW(cistern_trim(KIND, 0, &returned));
  return pool;
}

/* Segments without blocks make way for the program's own requests, and go with their context. */
static void end_context(void) {
  toy_context* ends = NULL;
  void* block = NULL;
  cistern_pool_settings settings = {.struct_bytes = sizeof settings, .name = "ends", .kind = KIND, .memory = SEGMENTS};
  cistern_pool* pool = NULL;
  if (toy_context_create(&ends)) return;
  settings.context = (struct _cl_context*)ends;
  SHOW(cistern_pool_create(&settings, &pool));
  SHOW(cistern_pool_allocate(pool, BYTES, 0, &block));
  SHOW(toy_context_destroy(ends)); /* it has a block */
  SHOW(cistern_pool_deallocate(pool, block, NULL));
  SHOW(toy_allocate(ends, ALL, &block));
  SHOW(toy_free(ends, block));
  SHOW(cistern_pool_allocate(pool, BYTES, 0, &block));
  SHOW(cistern_pool_deallocate(pool, block, NULL));
  SHOW(toy_context_destroy(ends));
  SHOW(cistern_pool_destroy(pool));
}

static void* forgotten_block(cistern_pool* pool) {
  void* block = NULL;
  SHOW(cistern_pool_allocate(pool, 5000, 0, &block));
  return block;
}

int main(int argc, char** argv) {
  if (argc != 2 || !cistern_pool_create) return 2;
  if (toy_context_create(&context)) return 1;
  given_context = (struct _cl_context*)context;
  cistern_pool* const pool = new_pool();
  use_pool(pool);
  defragment(pool);
  use_default_pool();
  use_queue(pool);
  use_transfer(pool);
  use_buffer();
  use_file(argv[1]);
  cistern_pool* const cut = use_segments();
  end_context();
  forgotten_block(pool);
  SHOW(cistern_pool_destroy(pool)); /* a block is alive */
  fflush(stdout);
  if (fork() == 0) {
    use_pool(pool);
    void* block = NULL;
    SHOW(cistern_pool_allocate(cut, 1000, 0, &block));
    SHOW(cistern_pool_deallocate(cut, block, NULL));
    fflush(stdout);
    _exit(0);
  }
  int status = 0;
  wait(&status);
  printf("the child ended with %d\n", status);
  return 0;
}
