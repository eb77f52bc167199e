/* leaky HOW [HOW...]: each word is one step. Memory: "lose" (a buffer of 4 KiB that nothing leads to), "lose-much" (of
   16 MiB), "keep" (one that a variable leads to), "use" (one that is freed), "lose-host" (64 KiB of malloc),
   "hold-host" (what variables lead to) and "drop-host" (they no longer do). Circumstances: "thread", "churn" (threads
   that make and free for ever), "filter" (of system calls: a write is fatal), "no-descriptors" (none is free),
   "small-stack" (the end comes in a signal handler on one), "coroutine" (it comes on a stack of 16 KiB), "fork" and
   "double-fork" (the rest is the child's), "child-loses" (as "lose", in a child that ends before). Ends: "return" by
   default, "exit", "_exit", "quick_exit", "abort", "kill", "exec" (/bin/true), "code3", "quick_exit3". Beside another
   thread: "two-quick_exits", "beside-errx", "beside-exit1" and "beside-_exit1" (which come when main has returned),
   "main-gone" (the thread starts $COMMAND in a shell, and ends the process). */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <err.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "../../support/asleep.h"

static cl_context context;
static cl_mem volatile kept;

static void start(void) {
  cl_platform_id platform;
  cl_device_id device;
  if (context) return;
  if (clGetPlatformIDs(1, &platform, NULL) || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL)) _exit(2);
  context = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
}

__attribute__((noinline)) static cl_mem make_bytes(size_t bytes) {
  start();
  return clCreateBuffer(context, 0, bytes, NULL, NULL);
}

static cl_mem make(void) { return make_bytes(4096); }

__attribute__((noinline)) static void lose_in_host(void) {
  static void* volatile block;
  block = malloc(65536);
  if (block) block = NULL;
}

static void* volatile held[3];
static void hold_in_host(void) {
  static const size_t kBytes[] = {3000, 100 << 10, 4 << 20};
  for (int i = 0; i < 3; ++i) held[i] = malloc(kBytes[i]);
}

/* Words of its stack may look like pointers to what was lost. */
__attribute__((noinline)) static void wipe_stack(void) {
  volatile char wiped[16384];
  for (size_t i = 0; i < sizeof wiped; ++i) wiped[i] = 0;
}

static volatile int waiting;
static void* wait_for_ever(void* unused) {
  waiting = gettid();
  for (;;) pause();
  return unused;
}

static void start_thread(void* (*run)(void*)) {
  pthread_t thread;
  pthread_create(&thread, NULL, run, NULL);
}

static void leave_thread_waiting(void) {
  start_thread(wait_for_ever);
  while (!waiting) usleep(1000);
  wait_until_asleep(getpid(), waiting);
}

static void* make_for_ever(void* unused) {
  for (;;) clReleaseMemObject(make());
  return unused;
}

static void* end_quickly(void* unused) {
  quick_exit(0);
  return unused;
}

static void* end_by_errx(void* unused) {
  usleep(20000);
  errx(0, "the end");
  return unused;
}

static volatile int main_has_returned;
static void let_other_thread_end(void) {
  main_has_returned = 1;
  usleep(300000);
}
static void* end_by_exit1(void* unused) {
  while (!main_has_returned) usleep(1000);
  exit(1);
  return unused;
}

static void* end_by__exit1(void* unused) {
  while (!main_has_returned) usleep(1000);
  _exit(1);
  return unused;
}

static void* start_command(void* unused) {
  wait_until_asleep(getpid(), getpid()); /* main is gone */
  exit(system(getenv("COMMAND")) != 0);
  return unused;
}

/* The last thread of the process: its return is the process's end. */
static void* lose_at_last(void* unused) {
  usleep(50000);
  lose_in_host(), wipe_stack();
  return unused;
}

static void take_all_descriptors(void) {
  const struct rlimit few = {64, 64};
  setrlimit(RLIMIT_NOFILE, &few);
  while (open("/dev/null", O_RDONLY) >= 0) {
  }
}

static void filter(void) {
  struct sock_filter rules[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 0, 1),
                                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
                                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) _exit(2);
}

static void end_here(int number) { _exit(number == SIGUSR1 ? 0 : 2); }

static void end_on_small_stack(void) {
  static char memory[65536];
  const stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
  struct sigaction action = {.sa_handler = end_here, .sa_flags = SA_ONSTACK};
  sigaltstack(&stack, NULL);
  sigaction(SIGUSR1, &action, NULL);
  raise(SIGUSR1);
}

static void end_quietly(void) { exit(0); }

static void end_in_coroutine(void) {
  enum { kBytes = 16384, kPageBytes = 4096 };
  static ucontext_t coroutine;
  char* const memory = mmap(NULL, kBytes + kPageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(memory + kPageBytes, kBytes, PROT_READ | PROT_WRITE);
  getcontext(&coroutine);
  coroutine.uc_stack.ss_sp = memory + kPageBytes;
  coroutine.uc_stack.ss_size = kBytes;
  makecontext(&coroutine, end_quietly, 0);
  setcontext(&coroutine);
}

/* The parent is content whatever becomes of the child. */
static void leave_rest_to_child(void) {
  const pid_t child = fork();
  if (!child) return;
  waitpid(child, NULL, 0);
  exit(0);
}

static void lose_in_child(void) {
  const pid_t child = fork();
  if (child) {
    waitpid(child, NULL, 0);
    return;
  }
  make(), wipe_stack();
  exit(0);
}

static int step(const char* how) {
  if (!strcmp(how, "lose")) make(), wipe_stack();
  if (!strcmp(how, "lose-much")) make_bytes(16 << 20), wipe_stack();
  if (!strcmp(how, "keep")) kept = make();
  if (!strcmp(how, "use")) clReleaseMemObject(make());
  if (!strcmp(how, "lose-host")) lose_in_host(), wipe_stack();
  if (!strcmp(how, "hold-host")) hold_in_host();
  if (!strcmp(how, "drop-host")) held[0] = held[1] = held[2] = NULL, wipe_stack();
  if (!strcmp(how, "thread")) leave_thread_waiting();
  if (!strcmp(how, "churn")) start(), start_thread(make_for_ever), start_thread(make_for_ever), usleep(20000);
  if (!strcmp(how, "no-descriptors")) take_all_descriptors();
  if (!strcmp(how, "filter")) filter();
  if (!strcmp(how, "small-stack")) end_on_small_stack();
  if (!strcmp(how, "coroutine")) end_in_coroutine();
  if (!strcmp(how, "fork")) leave_rest_to_child();
  if (!strcmp(how, "double-fork")) leave_rest_to_child(), leave_rest_to_child();
  if (!strcmp(how, "child-loses")) lose_in_child();
  if (!strcmp(how, "two-quick_exits")) start_thread(end_quickly), quick_exit(0);
  if (!strcmp(how, "beside-errx")) start_thread(end_by_errx);
  if (!strcmp(how, "beside-exit1")) atexit(let_other_thread_end), start_thread(end_by_exit1);
  if (!strcmp(how, "beside-_exit1")) atexit(let_other_thread_end), start_thread(end_by__exit1);
  if (!strcmp(how, "main-gone")) start_thread(start_command), pthread_exit(NULL);
  if (!strcmp(how, "last-loses")) start_thread(lose_at_last), pthread_exit(NULL);
  if (!strcmp(how, "exit")) exit(0);
  if (!strcmp(how, "_exit")) _exit(0);
  if (!strcmp(how, "quick_exit")) quick_exit(0);
  if (!strcmp(how, "quick_exit3")) quick_exit(3);
  if (!strcmp(how, "abort")) abort();
  if (!strcmp(how, "kill")) raise(SIGKILL);
  if (!strcmp(how, "exec")) execl("/bin/true", "true", (char*)NULL);
  return !strcmp(how, "code3") ? 3 : 0;
}

int main(int count, char** arguments) {
  int code = 0;
  for (int i = 1; i < count; ++i) code = step(arguments[i]);
  return code;
}
