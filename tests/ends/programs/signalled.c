/* signalled WAY: says "ready" and does something until a signal ends it; what it says is the same with a report as
   without. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../support/asleep.h"

static void ready(void) {
  puts("ready");
  fflush(stdout);
}

/* A flag between the C library and the kernel, which system() alone changes, behind everybody's back. */
#define FLAGS(entry) ((unsigned)(entry).sa_flags & ~0x04000000u)

static void show(const char* when, int number) {
  struct sigaction entry;
  if (sigaction(number, NULL, &entry)) return;
  const char* what = entry.sa_handler == SIG_DFL ? "default" : entry.sa_handler == SIG_IGN ? "ignored" : "handled";
  printf("%s: %d %s %x %lx\n", when, number, what, FLAGS(entry), *(unsigned long*)&entry.sa_mask);
}

static void* churn(void* unused) {
  unsigned seed = 1;
  for (;;) {
    void* volatile blocks[16];
    for (int i = 0; i < 16; ++i) blocks[i] = malloc((size_t)rand_r(&seed) % 200000);
    for (int i = 0; i < 16; ++i) free(blocks[i]);
  }
  return unused;
}

static void* load(void* unused) {
  for (;;) dlclose(dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL)), dlerror();
  return unused;
}

static void* block_all(void* unused) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  return churn(unused);
}

static void own_handler(int number) {
  (void)!write(1, "mine\n", 5);
  signal(number, SIG_DFL);
  raise(number);
}

static void say_handled(int number) {
  (void)number;
  (void)!write(1, "handled\n", 8);
}

/* The parent sends SIGTERM until the child, which is in malloc nearly always, is gone. */
static void storm(void) {
  for (int turn = 0; turn < 5; ++turn) {
    int status = 0;
    const pid_t child = fork();
    if (!child) {
      pthread_attr_t small;
      pthread_t thread;
      sigset_t all;
      pthread_attr_init(&small);
      pthread_attr_setstacksize(&small, 64 << 10);
      pthread_create(&thread, &small, churn, NULL);
      sigfillset(&all);
      pthread_sigmask(SIG_BLOCK, &all, NULL);
      for (;;) pause();
    }
    wait_until_asleep(child, child);
    while (waitpid(child, &status, WNOHANG) != child) kill(child, SIGTERM);
    printf("died of %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : -1);
  }
}

static void raise_and_go_on(int number) {
  (void)number;
  raise(SIGTERM);
  (void)!write(1, "went on\n", 8);
  _exit(5);
}

static void strict(void) {
  int status = 0, begun[2];
  char byte;
  if (pipe(begun)) _exit(2);
  const pid_t child = fork();
  if (!child) {
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    (void)!write(begun[1], "", 1);
    for (;;) {
    }
  }
  (void)!read(begun[0], &byte, 1);
  kill(child, SIGTERM);
  waitpid(child, &status, 0);
  printf("died of %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : -1);
}

/* Signals itself where there is no default action: as the first process of a namespace, made by fork or by exec. */
static int first_process(int forked) {
  int status = 0;
  pid_t child = 0;
  if (forked) {
    if (unshare(CLONE_NEWPID)) return 3;
    child = fork();
  }
  if (!child) {
    kill(getpid(), SIGTERM);
    usleep(50000);
    puts("alive");
    fflush(stdout);
    if (forked) _exit(0);
  }
  if (forked) waitpid(child, &status, 0);
  return status ? 4 : 0;
}

/* All that changes an entry, and what is read afterwards. */
static void change_tables(int number) {
  struct sigaction entry = {0}, old;
  show("at start", number);
  entry.sa_handler = SIG_DFL;
  entry.sa_flags = SA_RESTART | SA_NOCLDSTOP;
  sigaddset(&entry.sa_mask, SIGUSR1);
  errno = 77;
  const int answer = sigaction(number, &entry, &old);
  printf("sigaction: %d, %d, old %d %x\n", answer, errno, old.sa_handler == SIG_DFL, FLAGS(old));
  show("default, with flags", number);
  printf("signal: %d\n", signal(number, say_handled) == SIG_DFL);
  show("handled", number);
  raise(number);
  printf("signal: %d\n", signal(number, SIG_DFL) == say_handled);
  show("default by signal", number);
  siginterrupt(number, 1);
  show("interrupting", number);
  sigset(number, SIG_HOLD);
  show("held", number);
  printf("sigset: %d\n", sigset(number, SIG_DFL) == SIG_HOLD);
  show("default by sigset", number);
  sigignore(number);
  show("ignored", number);
  raise(number);
  printf("sysv_signal: %d\n", sysv_signal(number, say_handled) == SIG_IGN);
  raise(number);
  show("after one shot", number);
  printf("sigaction of an unknown signal: %d", sigaction(1000, NULL, &old));
  printf(" %d; of SIGKILL: %d %d\n", errno, sigaction(SIGKILL, &entry, NULL), errno);
  if (vfork() == 0) {
    signal(number, SIG_IGN);
    _exit(0);
  }
  show("after a vforked child's", number);
  printf("system: %d\n", system("kill -0 $$"));
  show("after system", number);
  fflush(stdout);
  const pid_t child = fork();
  if (!child) {
    show("in a child", number);
    fflush(stdout);
    _exit(0);
  }
  waitpid(child, NULL, 0);
}

int main(int argc, char** argv) {
  const char* way = argc > 1 ? argv[1] : "pause";
  void* volatile kept = malloc(3 << 20);
  memset(kept, 1, 3 << 20);
  pthread_t thread;
  if (!strcmp(way, "tables")) {
    change_tables(SIGHUP), change_tables(SIGINT), change_tables(SIGTERM), change_tables(SIGABRT);
    show("other", SIGUSR2);
    return 0;
  }
  if (!strcmp(way, "handler")) signal(SIGTERM, own_handler), signal(SIGINT, own_handler), signal(SIGHUP, own_handler);
  if (!strcmp(way, "blocked_here")) {
    pthread_create(&thread, NULL, churn, NULL);
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
  }
  if (!strcmp(way, "churn_beside"))
    for (int i = 0; i < 4; ++i) pthread_create(&thread, NULL, i % 2 ? churn : block_all, NULL);
  if (!strcmp(way, "small_stack")) {
    static char stack[8192 * 2];
    const stack_t small = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&small, NULL);
  }
  if (!strcmp(way, "many")) { /* blocks whose judgement takes long: each leads to the next one */
    static void** last;
    for (int i = 0; i < 4000000; ++i) {
      void** const next = malloc(48);
      *next = last;
      last = next;
    }
  }
  if (!strcmp(way, "exiting")) {
    ready();
    usleep(300000);
    return 5;
  }
  if (!strcmp(way, "workers")) {
    pid_t children[3];
    for (int i = 0; i < 3; ++i)
      if (!(children[i] = fork())) pause();
    for (int i = 0; i < 3; ++i) {
      int status = 0;
      wait_until_asleep(children[i], children[i]);
      kill(children[i], SIGTERM);
      waitpid(children[i], &status, 0);
      printf("worker: %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : -1);
    }
    return 0;
  }
  if (!strcmp(way, "storm")) return storm(), 0;
  if (!strcmp(way, "strict")) return strict(), 0;
  if (!strcmp(way, "first_process")) return first_process(argc > 2);
  if (!strcmp(way, "raise")) signal(SIGALRM, raise_and_go_on);
  ready();
  if (!strcmp(way, "raise")) churn(NULL);
  if (!strcmp(way, "late_handler")) {
    const time_t end = time(NULL) + 2; /* longer than a second */
    while (time(NULL) < end)
      for (int i = 0; i < 100; ++i) free(malloc((size_t)i * 1000));
    signal(SIGTERM, say_handled);
    usleep(100000);
    return 0;
  }
  if (!strcmp(way, "churn")) churn(NULL);
  if (!strcmp(way, "load")) load(NULL);
  for (;;) pause();
}
