/* Processes that end, for ends.py: with live blocks, beside busy threads, as children of a thread among many.
 *
 *   ends end BUSY LIVE           busy threads allocate while the process ends, with so many live blocks
 *   ends fork WAY CHILDREN BUSY  children one after the other; WAY: bare, _exit, exit (both allocate a little), exec
 *   ends threads IDLE CHILDREN   beside threads that allocate every 20 ms
 * Prints the milliseconds that the children took; 0: there are none. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile int stop;
static void** keep;

static void* allocate(void* argument) {
  void* blocks[64] = {0};
  unsigned random = 1;
  while (!stop) {
    random = random * 1103515245 + 12345;
    const unsigned one = random >> 26;
    free(blocks[one]);
    blocks[one] = malloc(16 + (random >> 12) % 3000);
  }
  for (int i = 0; i < 64; ++i) free(blocks[i]);
  return argument;
}

static void* allocate_now_and_then(void* argument) {
  while (!stop) {
    for (int i = 0; i < 50; ++i) {
      char* volatile block = malloc((size_t)i * 30);
      free(block);
    }
    usleep(20000);
  }
  return argument;
}

static pthread_t* started(int count, void* (*work)(void*)) {
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 65536);
  pthread_t* const threads = malloc((size_t)(count + 1) * sizeof *threads);
  for (int i = 0; i < count; ++i) pthread_create(&threads[i], &small, work, 0);
  return threads;
}

static void be_child(const char* way) {
  if (!strcmp(way, "exec")) execl("/bin/true", "true", (char*)0);
  if (!strcmp(way, "bare")) _exit(0);
  for (int i = 0; i < 50; ++i) {
    char* volatile block = malloc(100 + (size_t)i);
    if (i % 5) free(block);
  }
  if (!strcmp(way, "exit")) exit(0);
  _exit(0);
}

static double fork_children(const char* way, int children) {
  struct timespec first, last;
  clock_gettime(CLOCK_MONOTONIC, &first);
  for (int i = 0; i < children; ++i) {
    const pid_t child = fork();
    if (child == 0) be_child(way);
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) abort();
  }
  clock_gettime(CLOCK_MONOTONIC, &last);
  return 1e3 * (double)(last.tv_sec - first.tv_sec) + 1e-6 * (double)(last.tv_nsec - first.tv_nsec);
}

static int run_end(int busy, int live) {
  keep = malloc((size_t)(live + 1) * sizeof *keep);
  for (int i = 0; i < live; ++i) keep[i] = malloc(64);
  started(busy, allocate);
  if (busy) usleep(50000);
  char text[] = "0\n";
  return write(1, text, 2) != 2;
}

static int run_children(const char* way, int children, int beside, void* (*work)(void*)) {
  pthread_t* const threads = started(beside, work);
  const double took = fork_children(way, children);
  stop = 1;
  for (int i = 0; i < beside; ++i) pthread_join(threads[i], 0);
  printf("%.3f\n", took);
  return 0;
}

int main(int count, char** arguments) {
  if (count < 4) return 2;
  if (!strcmp(arguments[1], "end")) return run_end(atoi(arguments[2]), atoi(arguments[3]));
  if (!strcmp(arguments[1], "threads"))
    return run_children("_exit", atoi(arguments[3]), atoi(arguments[2]), allocate_now_and_then);
  return run_children(arguments[2], atoi(arguments[3]), count > 4 ? atoi(arguments[4]) : 0, allocate);
}
