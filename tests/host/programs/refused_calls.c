// One system call after the other, those that a malloc may make but the C library's does not, is refused with EPERM or
// ENOSYS (argv[1]: the number of the error), each in a forked child that then allocates, checks that blocks read as
// zero where they must, frees, and starts threads.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct {
  int number;
  const char* name;
} kCalls[] = {{SYS_madvise, "madvise"},         {SYS_mincore, "mincore"},
              {SYS_mprotect, "mprotect"},       {SYS_mremap, "mremap"},
              {SYS_getpid, "getpid"},           {SYS_gettid, "gettid"},
              {SYS_sigaltstack, "sigaltstack"}, {SYS_sched_yield, "sched_yield"},
              {SYS_getcpu, "getcpu"},           {SYS_clock_gettime, "clock"},
              {SYS_openat, "openat"},           {SYS_sysinfo, "sysinfo"},
              {SYS_prlimit64, "prlimit"},       {SYS_mbind, "mbind"},
              {SYS_membarrier, "membarrier"},   {SYS_rt_sigprocmask, "sigprocmask"}};

static void refuse(int number, unsigned error) {
  struct sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = {4, program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) _exit(9);
}

static void* allocate(void* seed) {
  char* blocks[64] = {0};
  uint64_t state = (uintptr_t)seed;
  for (int i = 0; i < 1500; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    char** const block = &blocks[state >> 40 & 63];
    const size_t bytes = 1 + (state >> 50 & 7 ? state >> 33 & 4095 : state >> 33 & 524287);
    if (*block && state >> 62) {
      *block = realloc(*block, bytes);
    } else {
      free(*block);
      *block = calloc(bytes, 1);
      for (size_t at = 0; *block && at < bytes; at += 997)
        if ((*block)[at]) _exit(3);
    }
    if (!*block) _exit(2);
    memset(*block, 1, bytes);
  }
  for (int i = 0; i < 64; ++i) free(blocks[i]);
  return NULL;
}

int main(int count, char** arguments) {
  const unsigned error = count > 1 ? (unsigned)atoi(arguments[1]) : EPERM;
  setvbuf(stdout, NULL, _IONBF, 0);
  allocate((void*)1);
  for (size_t i = 0; i < sizeof kCalls / sizeof *kCalls; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      refuse(kCalls[i].number, error);
      allocate((void*)2);
      pthread_t threads[2];
      int made = 0;
      while (made < 2 && pthread_create(&threads[made], NULL, allocate, (void*)(uintptr_t)(made + 3)) == 0) ++made;
      while (made > 0) pthread_join(threads[--made], NULL);
      malloc_trim(0);
      allocate((void*)2);
      exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    printf("%s: %d\n", kCalls[i].name, status);
  }
  return 0;
}
