// A cache of registrations, as fabrics of MPI have one: its lock is taken by its handler of unmappings, which libucm
// calls, and its own code allocates while it holds that lock. A second thread allocates and frees blocks of 40 MiB.
// With an allocator that gives memory back under a lock of its own both wait for each other. usage: unmap_events ROUNDS
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucm/api/ucm.h>

enum { kSmallBlocks = 30, kLargeBlocks = 4, kLargeBytes = 40 << 20 };

static pthread_mutex_t cache;
static atomic_int cache_rounds, large_rounds, events, waiting;
static int rounds;

static int done(void) { return cache_rounds >= rounds && large_rounds >= rounds; }

static void forget(ucm_event_type_t type, ucm_event_t* event, void* data) {
  (void)type, (void)event, (void)data;
  ++waiting;
  pthread_mutex_lock(&cache);
  --waiting;
  ++events;
  pthread_mutex_unlock(&cache);
}

static void* use_cache(void* data) {
  for (; !done(); ++cache_rounds) {
    char* blocks[kSmallBlocks];
    while (waiting) sched_yield();  // a mutex is not fair: who gives it back would take it again
    pthread_mutex_lock(&cache);
    for (int i = 0; i < kSmallBlocks; ++i) {
      blocks[i] = malloc(100 + 4000 * (size_t)i);
      *blocks[i] = 1;
    }
    for (int i = 0; i < kSmallBlocks; ++i) free(blocks[i]);
    pthread_mutex_unlock(&cache);
  }
  return data;
}

static void* use_large_blocks(void* data) {
  for (; !done(); ++large_rounds) {
    char* blocks[kLargeBlocks];
    for (int i = 0; i < kLargeBlocks; ++i) {
      blocks[i] = malloc(kLargeBytes + 100000 * (size_t)(large_rounds % 7));
      for (size_t at = 0; at < kLargeBytes; at += 1 << 20) blocks[i][at] = 1;
    }
    for (int i = 0; i < kLargeBlocks; ++i) free(blocks[i]);
  }
  return data;
}

int main(int count, char** arguments) {
  if (count != 2) return 2;
  rounds = atoi(arguments[1]);
  pthread_mutexattr_t recursive;
  pthread_mutexattr_init(&recursive);
  pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&cache, &recursive);
  if (ucm_set_event_handler(UCM_EVENT_VM_UNMAPPED, 0, forget, NULL) != UCS_OK) return 3;
  pthread_t threads[2];
  pthread_create(&threads[0], NULL, use_cache, NULL);
  pthread_create(&threads[1], NULL, use_large_blocks, NULL);
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  puts(events ? "all rounds, and unmappings were announced" : "all rounds, and no unmapping was announced");
  return 0;
}
