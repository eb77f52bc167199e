// Sets a filter of system calls that kills the process at any call but those that the C library's malloc makes, and
// those of its end; then it allocates, frees, starts no thread, and ends by argv[2]: exit, _exit or return. argv[1]
// says how the filter is set: prctl, syscall, or unseen (by the instruction itself). With argv[3] nothing was allocated
// before.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const int kAllowed[] = {SYS_brk, SYS_mmap, SYS_munmap, SYS_mremap, SYS_write, SYS_getrandom, SYS_exit_group};
enum { kCalls = sizeof kAllowed / sizeof *kAllowed };

static int set_filter(const char* way) {
  struct sock_filter program[kCalls + 3] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
  for (int i = 0; i < kCalls; ++i)
    program[1 + i] =
        (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)kAllowed[i], (unsigned char)(kCalls - i), 0);
  program[kCalls + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  program[kCalls + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct sock_fprog filter = {kCalls + 3, program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return -1;
  if (!strcmp(way, "prctl")) return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
  if (!strcmp(way, "syscall")) return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter);
#if defined(__x86_64__)
  long answer;
  __asm__ volatile("syscall"
                   : "=a"(answer)
                   : "a"(SYS_seccomp), "D"(SECCOMP_SET_MODE_FILTER), "S"(0), "d"(&filter)
                   : "rcx", "r11", "memory");
  return (int)answer;
#else
  return -1;
#endif
}

// What the C library's malloc does without other calls: large blocks come and go, grow and shrink, and read as zero.
static void allocate(void) {
  char* blocks[64] = {0};
  uint64_t state = 1;
  for (int i = 0; i < 20000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    char** const block = &blocks[state >> 40 & 63];
    const size_t bytes = state >> 50 & 7 ? state >> 33 & 2047 : state >> 33 & 1048575;
    if (*block && state >> 62) {
      *block = realloc(*block, bytes + 1);
    } else {
      free(*block);
      *block = calloc(bytes + 1, 1);
      for (size_t at = 0; *block && at <= bytes; at += 509)
        if ((*block)[at]) _exit(3);
    }
    if (!*block) _exit(2);
    memset(*block, 1, bytes + 1);
  }
  for (int i = 0; i < 64; ++i) free(blocks[i]);
}

int main(int count, char** arguments) {
  setvbuf(stdout, NULL, _IONBF, 0);
  static const char kDone[] = "filtered\n";
  if (count < 4) free(malloc(100));
  if (count < 3 || set_filter(arguments[1]) != 0) return 4;
  for (int i = 0; i < 3; ++i) allocate();
  if (write(STDOUT_FILENO, kDone, sizeof kDone - 1) < 0) return 5;
  if (!strcmp(arguments[2], "exit")) exit(0);
  if (!strcmp(arguments[2], "_exit")) _exit(0);
  return 0;
}
