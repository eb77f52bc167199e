// Processes that fork from several threads, while others allocate; a child whose library's file is gone; and one of a
// process that dies of mapping memory that children share.
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int stop;
static int children;

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

static void* volatile lost;
static void lose_some(void) {
  for (int i = 0; i < 8; ++i) lost = malloc(300);
  lost = 0;
}

static int ended_well(pid_t child) {
  int status = 1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static void* fork_children(void* wrong) {
  for (int i = 0; i < children; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      if (i % 3 == 0) execl("/bin/true", "true", (char*)0);
      lose_some();
      if (i % 3 == 1) exit(0);
      _exit(0);
    }
    if (!ended_well(child)) __atomic_fetch_add((int*)wrong, 1, __ATOMIC_SEQ_CST);
  }
  return 0;
}

// THREADS CHILDREN: that many children of each.
static int from_threads(int threads) {
  pthread_t forking[64], busy[2];
  int wrong = 0;
  for (int i = 0; i < 2; ++i) pthread_create(&busy[i], 0, allocate, 0);
  for (int i = 0; i < threads; ++i) pthread_create(&forking[i], 0, fork_children, &wrong);
  for (int i = 0; i < threads; ++i) pthread_join(forking[i], 0);
  stop = 1;
  for (int i = 0; i < 2; ++i) pthread_join(busy[i], 0);
  printf("wrong %d\n", wrong);
  return 0;
}

// Two children lose a block in the library; its file goes in between.
static int without_library(const char* path) {
  void* const library = dlopen(path, RTLD_NOW);
  void (*const lose)(void) = library ? (void (*)(void))dlsym(library, "lose_in_library") : 0;
  int wrong = !lose;
  for (int i = 0; i < 2 && lose; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      lose();
      _exit(0);
    }
    wrong += !ended_well(child);
    unlink(path);
  }
  printf("wrong %d\n", wrong);
  return 0;
}

static int under_filter(void) {
  struct sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_SHARED, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
  int wrong = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
  const pid_t child = fork();
  if (child == 0) {
    lose_some();
    _exit(0);
  }
  wrong += !ended_well(child);
  printf("wrong %d\n", wrong);
  return 0;
}

int main(int count, char** arguments) {
  if (count == 2 && !strcmp(arguments[1], "filtered")) return under_filter();
  if (count == 3 && !strcmp(arguments[1], "library")) return without_library(arguments[2]);
  children = atoi(arguments[2]);
  return from_threads(atoi(arguments[1]));
}
