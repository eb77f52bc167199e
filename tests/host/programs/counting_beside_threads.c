// Asks how much memory is in use, for argv[1] milliseconds, while threads allocate, hand blocks to each other to free,
// and fill them with what looks like links of a list: addresses of other blocks, nearly those, and none at all. With
// "exit" or "_exit" the process ends in the middle of it.
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { kThreads = 4, kSlots = 64, kBlocks = 128 };
static _Atomic(void*) slots[kSlots];
static atomic_int stop;

static uint64_t next(uint64_t* state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

static void fill(void** block, size_t bytes, uint64_t word, void* other) {
  void* const values[] = {other, (char*)other + 8, (char*)other + 65536, (void*)(uintptr_t)word, (void*)~(uintptr_t)15};
  for (size_t i = 0; i < bytes / sizeof(void*); ++i) block[i] = values[(word + i) % 5];
}

static void* work(void* argument) {
  uint64_t state = (uint64_t)(uintptr_t)argument * 77 + 1;
  void* own[kBlocks] = {0};
  while (!stop) {
    const uint64_t word = next(&state);
    const size_t i = word % kBlocks;
    if (own[i] && word & 1024) {
      free(atomic_exchange(&slots[word / 2048 % kSlots], own[i]));
      own[i] = NULL;
    } else if (own[i]) {
      free(own[i]);
      own[i] = NULL;
    } else {
      const size_t bytes = word & 4096 ? 16 + word / 8192 % 600 : word / 8192 % 40000;
      own[i] = malloc(bytes);
      if (!own[i]) abort();
      fill(own[i], bytes, word, own[next(&state) % kBlocks]);
    }
  }
  for (int i = 0; i < kBlocks; ++i) free(own[i]);
  return NULL;
}

static int milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int)(now.tv_sec % 100000 * 1000 + now.tv_nsec / 1000000);
}

int main(int count, char** arguments) {
  const int until = milliseconds() + (count > 1 ? atoi(arguments[1]) : 100);
  pthread_t threads[kThreads];
  for (uintptr_t i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, work, (void*)i);
  FILE* const sink = fopen("/dev/null", "w");
  while (milliseconds() < until) {
    const struct mallinfo2 info = mallinfo2();
    if (info.uordblks > info.arena + info.hblkhd || info.arena > (size_t)1 << 32) {
      printf("%zu of %zu bytes in use\n", info.uordblks, info.arena);
      _exit(1);
    }
    if (malloc_info(0, sink) != 0) abort();
  }
  if (count > 2) strcmp(arguments[2], "exit") ? _exit(0) : exit(0);
  stop = 1;
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  for (int i = 0; i < kSlots; ++i) free(slots[i]);
  fclose(sink);
  puts("counted");
  return 0;
}
