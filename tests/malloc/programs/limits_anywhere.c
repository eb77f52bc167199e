// Limits are set, and memory is locked, where nothing may be waited for: in a signal handler that interrupts malloc and
// free, in children that a system call forked while other threads are in malloc, and in a child of vfork, whose limits
// are not the parent's. argv: handler, child or vfork, and for the first two limit or lock.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static _Alignas(4096) char page[4096];
static int locks;
static volatile sig_atomic_t interrupted;
static atomic_bool done;

static void limit_or_lock(void) {
  if (locks) {
    mlock(page, sizeof page);
    munlock(page, sizeof page);
    return;
  }
  struct rlimit limit;
  getrlimit(RLIMIT_AS, &limit);
  setrlimit(RLIMIT_AS, &limit);
}

static void handle(int number) {
  (void)number;
  limit_or_lock();
  ++interrupted;
}

static void allocate_and_free(void) {
  void* volatile blocks[20];
  for (int i = 0; i < 20; ++i) blocks[i] = malloc(70000 + (size_t)i * 65536);
  for (int i = 0; i < 20; ++i) free(blocks[i]);
}

static void* work(void* argument) {
  while (!done) allocate_and_free();
  return argument;
}

static int in_a_handler(void) {
  struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  const struct itimerval often = {{0, 100}, {0, 100}};
  setitimer(ITIMER_REAL, &often, NULL);
  while (interrupted < 3000) allocate_and_free();
  return 0;
}

static int in_children(void) {
  pthread_t threads[3];
  for (int i = 0; i < 3; ++i) pthread_create(&threads[i], NULL, work, NULL);
  int ended_ill = 0;
  for (int i = 0; i < 300 && !ended_ill; ++i) {
    const pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
      alarm(20);
      limit_or_lock();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ended_ill = status;
  }
  done = 1;
  for (int i = 0; i < 3; ++i) pthread_join(threads[i], NULL);
  return ended_ill != 0;
}

// Where addresses are scarce the pool unmaps what is free, and else it does not, as opposed to the C library.
static int in_a_child_of_vfork(void) {
  char* volatile block = malloc(40 << 20);
  memset(block, 1, 40 << 20);
  const pid_t child = vfork();
  if (child == 0) {
    struct rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = (rlim_t)1 << 30;
    setrlimit(RLIMIT_AS, &limit);
    _exit(0);
  }
  waitpid(child, NULL, 0);
  free(block);
  unsigned char resident;
  return getenv("LD_PRELOAD") && mincore(block, 4096, &resident) != 0;
}

int main(int count, char** arguments) {
  locks = count > 2 && strcmp(arguments[2], "lock") == 0;
  int failed;
  if (strcmp(arguments[1], "handler") == 0)
    failed = in_a_handler();
  else if (strcmp(arguments[1], "child") == 0)
    failed = in_children();
  else
    failed = in_a_child_of_vfork();
  puts(failed ? "failed" : "did not wait");
  return failed;
}
