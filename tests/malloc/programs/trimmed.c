// A burst of 400,000 blocks of 16 to 2,015 bytes, of which one in a hundred survives, and what stays resident then:
//   trimmed trim     after malloc_trim
//   trimmed quiet    after three seconds with a few blocks now and then
//   trimmed threads  as soon as 48 threads have ended that freed their bursts
//   trimmed other    one thread's burst, another's malloc_trim, then the first allocates
// Prints the peak and what is left, in KiB. Survivors keep their contents.
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { kBlocks = 400000, kThreads = 48 };

static pthread_barrier_t together;
static long peak_kib;

static long resident_kib(void) {
  long pages = 0, resident = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%ld %ld", &pages, &resident) != 2) exit(2);
  fclose(file);
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

struct made {
  unsigned char* block;
  size_t bytes;
};

static void make(struct made* all, size_t count, unsigned seed) {
  for (size_t i = 0; i < count; ++i) {
    all[i].bytes = 16 + rand_r(&seed) % 2000;
    all[i].block = malloc(all[i].bytes);
    memset(all[i].block, (int)(i % 251), all[i].bytes);
  }
}

static void drop_all_but(struct made* all, size_t count, size_t of) {
  for (size_t i = 0; i < count; ++i)
    if (!of || i % of) free(all[i].block);
}

static void check(const struct made* all, size_t count) {
  for (size_t i = 0; i < count; i += 100)
    for (size_t at = 0; at < all[i].bytes; ++at)
      if (all[i].block[at] != i % 251) exit(3);
}

static void allocate_a_little(void) {
  static void* volatile block;
  for (int i = 0; i < 3000; ++i) {
    block = malloc(100 + (size_t)i % 400 * 8);
    free(block);
  }
}

static void* burst_of_thread(void* seed) {
  struct made* all = malloc(kBlocks / kThreads * sizeof *all);
  make(all, kBlocks / kThreads, (unsigned)(size_t)seed);
  pthread_barrier_wait(&together);
  pthread_barrier_wait(&together);
  drop_all_but(all, kBlocks / kThreads, 0);
  free(all);
  return NULL;
}

static void threads(void) {
  pthread_t thread[kThreads];
  pthread_barrier_init(&together, NULL, kThreads + 1);
  for (size_t i = 0; i < kThreads; ++i)
    if (pthread_create(&thread[i], NULL, burst_of_thread, (void*)(i + 1))) exit(2);
  pthread_barrier_wait(&together);
  peak_kib = resident_kib();
  pthread_barrier_wait(&together);
  for (size_t i = 0; i < kThreads; ++i) pthread_join(thread[i], NULL);
}

static void* trim_beside(void* unused) {
  malloc_trim(0);
  return unused;
}

int main(int count, char** arguments) {
  const char* way = count > 1 ? arguments[1] : "";
  if (!strcmp(way, "threads")) {
    threads();
    printf("%ld %ld\n", peak_kib, resident_kib());
    return 0;
  }
  struct made* all = malloc(kBlocks * sizeof *all);
  make(all, kBlocks, 1);
  peak_kib = resident_kib();
  drop_all_but(all, kBlocks, 100);
  if (!strcmp(way, "trim")) {
    if (malloc_trim(0) != 1) return 4;
  } else if (!strcmp(way, "quiet")) {
    for (int i = 0; i < 30; ++i) {
      allocate_a_little();
      nanosleep(&(struct timespec){0, 100000000}, NULL);
    }
  } else {
    pthread_t thread;
    if (pthread_create(&thread, NULL, trim_beside, NULL)) return 2;
    pthread_join(thread, NULL);
    for (int i = 0; i < 100; ++i) allocate_a_little();
  }
  printf("%ld %ld\n", peak_kib, resident_kib());
  check(all, kBlocks);
  return 0;
}
