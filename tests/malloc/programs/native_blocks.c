// Blocks of the C library's own heap, as a plugin that was opened with RTLD_DEEPBIND has them, freed by the program.
//   native_blocks time COUNT [thread]  allocates twice so many, frees every other one: the CPU time of one free in ns
//   native_blocks refused CALL         works with the system call refused by a filter, and frees some of each kind
//   native_blocks refused_before CALL  the same, the filter being set before this program is started
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void* (*allocate)(size_t);

static double cpu_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void* time_frees(void* count_text) {
  const int count = atoi(count_text);
  void** blocks = allocate(2 * (size_t)count * sizeof *blocks);
  for (int i = 0; i < 2 * count; ++i) blocks[i] = allocate(2000);
  const double begin = cpu_ns();
  for (int i = 0; i < 2 * count; i += 2) free(blocks[i]);
  printf("%.0f\n", (cpu_ns() - begin) / count);
  for (int i = 1; i < 2 * count; i += 2) free(blocks[i]);
  return NULL;
}

static int refuse(const char* call) {
  const struct {
    const char* name;
    int number;
  } known[] = {{"mincore", SYS_mincore}, {"madvise", SYS_madvise}, {"mremap", SYS_mremap}, {"mprotect", SYS_mprotect}};
  unsigned number = 0;
  for (unsigned i = 0; i < sizeof known / sizeof *known; ++i)
    if (!strcmp(known[i].name, call)) number = (unsigned)known[i].number;
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  return number && !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, 2, &program);
}

static void* blocks_of_a_thread(void* blocks) {
  for (size_t i = 0; i < 10; ++i) ((void**)blocks)[i] = allocate(100 << i);
  return NULL;
}

static int work(const char* call, int sets_filter) {
  void *own[10], *of_thread[10], *large = allocate(3 << 20);
  pthread_t thread;
  pthread_create(&thread, NULL, blocks_of_a_thread, of_thread);
  pthread_join(thread, NULL);
  for (size_t i = 0; i < 10; ++i) own[i] = allocate(100 << i);
  if (sets_filter && !refuse(call)) return 2;
  for (size_t i = 0; i < 10; ++i) free(own[i]), free(of_thread[i]);
  free(large);
  // Ours, with everything that makes the pool ask the system: much that comes and goes, and grows.
  unsigned sum = 0;
  for (size_t round = 0; round < 4; ++round)
    for (size_t bytes = 1000; bytes < 200 << 20; bytes *= 3) {
      unsigned char* block = malloc(bytes);
      memset(block, 7, bytes);
      block = realloc(block, 2 * bytes);
      sum += block[0] + block[bytes - 1];
      unsigned char* cleared = calloc(bytes, 1);
      for (size_t i = 0; i < bytes; i += 999) sum += cleared[i];
      free(cleared);
      free(block);
    }
  printf("%s refused: %u\n", call, sum);
  return 0;
}

int main(int count, char** arguments) {
  setvbuf(stdout, NULL, _IONBF, 0);
  void* libc = dlopen("libc.so.6", RTLD_NOW);
  allocate = (void* (*)(size_t))dlsym(libc, "malloc");
  if (count < 3 || !allocate) return 2;
  if (!strcmp(arguments[1], "refused")) return work(arguments[2], 1);
  if (!strcmp(arguments[1], "started_refused")) return work(arguments[2], 0);
  if (!strcmp(arguments[1], "refused_before"))
    return refuse(arguments[2]) && execl(arguments[0], arguments[0], "started_refused", arguments[2], NULL);
  if (count == 3) return time_frees(arguments[2]) != NULL;
  pthread_t thread;
  pthread_create(&thread, NULL, time_frees, arguments[2]);
  return pthread_join(thread, NULL);
}
