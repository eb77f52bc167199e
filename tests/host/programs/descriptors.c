// The numbers that a program's own files get, and whether what it has in them stays its own: at the start, in threads,
// handlers of signals and children, and after it has closed all that it did not open.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static void* (*volatile allocate)(size_t) = malloc;
static void* kept;

static void allocate_some(void) {
  for (int i = 0; i < 200; ++i) free(allocate((size_t)i * 5000 + 1));
  free(kept);
  kept = allocate(100);
}

static void say_first(const char* when) {
  const int file = open("/dev/null", O_RDONLY);
  printf("%s: %d\n", when, file);
  close(file);
}

static void* in_thread(void* nothing) {
  allocate_some();
  say_first("in a thread");
  return nothing;
}

static void in_handler(int signal) {
  (void)signal;
  allocate_some();
}

static ucontext_t main_context, coroutine;
static char stack[64 << 10];

// Stacks of every sort, so that none of them needs a file.
static void allocate_everywhere(void) {
  allocate_some();
  signal(SIGUSR1, in_handler);
  raise(SIGUSR1);
  getcontext(&coroutine);
  coroutine.uc_stack.ss_sp = stack;
  coroutine.uc_stack.ss_size = sizeof stack;
  coroutine.uc_link = &main_context;
  makecontext(&coroutine, allocate_some, 0);
  swapcontext(&main_context, &coroutine);
}

static void say_in_child(const char* when) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    allocate_everywhere();
    say_first(when);
    fflush(stdout);
    _exit(0);
  }
  waitpid(child, NULL, 0);
}

// Others may come to look at memory from time to time.
static void allocate_for_a_while(void) {
  struct timespec start, now;
  clock_gettime(CLOCK_MONOTONIC, &start);
  do {
    allocate_everywhere();
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < 60);
}

int main(void) {
  say_first("at the start");
  allocate_everywhere();
  say_first("later");
  pthread_t thread;
  pthread_create(&thread, NULL, in_thread, NULL);
  pthread_join(thread, NULL);
  say_in_child("in a child");

  for (int file = 3; file < 1024; ++file) close(file);
  say_first("when all were closed");
  allocate_for_a_while();
  say_first("after that");

  // Its own now: pipes with a byte, where others may have had theirs.
  int ends[16][2];
  for (int i = 0; i < 16; ++i)
    if (pipe2(ends[i], O_NONBLOCK) || write(ends[i][1], "x", 1) != 1) return 1;
  allocate_for_a_while();
  say_in_child("in a child of pipes");
  for (int i = 0; i < 16; ++i) {
    char bytes[8];
    printf("pipe %d %d has %zd\n", ends[i][0], ends[i][1], read(ends[i][0], bytes, sizeof bytes));
  }
  say_first("at the end");
  return 0;
}
