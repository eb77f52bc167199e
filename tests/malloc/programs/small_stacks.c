// Memory asked for on small stacks: the most that a call of malloc's family takes of a coroutine's stack, and the same
// calls on coroutines of 4 KiB, in threads of the smallest size and in handlers of signals on a stack of their own.
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { kMeasured = 128 << 10, kSmall = 4 << 10, kMost = 3 << 10, kGuard = 64 << 10, kFill = 0xA5 };

static void* blocks[64];
static void* (*volatile allocate)(size_t) = malloc;  // calls that no compiler leaves out

static void take_small(void) {
  for (int i = 0; i < 64; ++i) blocks[i] = allocate((size_t)i * 37 + 1);
  for (int i = 0; i < 64; ++i) free(blocks[i]);
}
static void take_large(void) {
  blocks[0] = allocate(700000);
  blocks[0] = realloc(blocks[0], 1500000);
  free(blocks[0]);
  blocks[0] = calloc(1000, 1000);
  free(blocks[0]);
}
static void take_medium(void) {
  for (int i = 0; i < 64; ++i) blocks[i] = allocate(2000 + (size_t)i * 1000);
  for (int i = 0; i < 64; ++i) blocks[i] = realloc(blocks[i], 70000 - (size_t)i * 1000);
  for (int i = 0; i < 64; ++i) free(blocks[i]);
}
static void take_aligned(void) {
  for (size_t alignment = 16; alignment <= 1 << 20; alignment *= 4) {
    blocks[0] = aligned_alloc(alignment, 600000);
    if (posix_memalign(&blocks[1], alignment, 100)) abort();
    free(blocks[0]);
    free(blocks[1]);
  }
}
static void take_too_much(void) {
  if (allocate((size_t)1 << 60) || allocate((size_t)PTRDIFF_MAX + 1)) abort();
}
// So long that whoever looks at what grows from time to time does so here.
static void take_for_a_while(void) {
  struct timespec start, now;
  clock_gettime(CLOCK_MONOTONIC, &start);
  do {
    for (int i = 0; i < 64; ++i) blocks[i] = allocate(600000);
    for (int i = 0; i < 64; ++i) free(blocks[i]);
    take_small();
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < 60);
}
#if defined(__x86_64__)
// Its frame is found by a register that unwinders seldom see used for it.
void call_with_frame_in_r12(void (*function)(void));
__asm__(
    ".text\n"
    ".type call_with_frame_in_r12, @function\n"
    "call_with_frame_in_r12:\n"
    ".cfi_startproc\n"
    "push %r12\n"
    ".cfi_adjust_cfa_offset 8\n"
    ".cfi_offset %r12, -16\n"
    "mov %rsp, %r12\n"
    ".cfi_def_cfa_register %r12\n"
    "call *%rdi\n"
    "pop %r12\n"
    ".cfi_def_cfa %rsp, 8\n"
    "ret\n"
    ".cfi_endproc\n"
    ".size call_with_frame_in_r12, . - call_with_frame_in_r12\n");
static void take_in_an_odd_frame(void) { call_with_frame_in_r12(take_large); }
#else
static void take_in_an_odd_frame(void) { take_large(); }
#endif

static void (*const kWork[])(void) = {take_small,    take_large,       take_medium,         take_aligned,
                                      take_too_much, take_for_a_while, take_in_an_odd_frame};
enum { kWorks = sizeof kWork / sizeof *kWork };

// --- Coroutines, above a guard
static ucontext_t main_context, coroutine;
static void (*work)(void);
static uintptr_t first_frame;

static void work_on_coroutine(void) {
  first_frame = (uintptr_t)__builtin_frame_address(0);
  work();
}

static char* make_stack(size_t bytes) {
  char* const memory = mmap(NULL, kGuard + bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory + kGuard, bytes, PROT_READ | PROT_WRITE)) abort();
  return memory + kGuard;
}

static void run_on(char* stack, size_t bytes, void (*what)(void)) {
  work = what;
  getcontext(&coroutine);
  coroutine.uc_stack.ss_sp = stack;
  coroutine.uc_stack.ss_size = bytes;
  coroutine.uc_link = &main_context;
  makecontext(&coroutine, work_on_coroutine, 0);
  swapcontext(&main_context, &coroutine);
}

static void measure(char* stack, int number, const char* when) {
  memset(stack, kFill, kMeasured);
  run_on(stack, kMeasured, kWork[number]);
  size_t untouched = 0;
  while ((unsigned char)stack[untouched] == kFill) ++untouched;
  const size_t taken = first_frame - (uintptr_t)(stack + untouched);
  if (taken > kMost) printf("%s, work %d took %zu bytes of the stack\n", when, number, taken);
}

// --- Threads and handlers
static void* work_in_thread(void* nothing) {
  for (int i = 0; i < kWorks; ++i) kWork[i]();
  return nothing;
}

static void work_in_handler(int signal) {
  (void)signal;
  take_large();
  take_small();
}

int main(void) {
  setvbuf(stdout, NULL, _IONBF, 0);
  char* const measured = make_stack(kMeasured);
  char* const small = make_stack(kSmall);
  for (int i = 0; i < kWorks; ++i) {  // each as the first of a process
    const pid_t child = fork();
    if (child == 0) {
      measure(measured, i, "first");
      _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (status) printf("work %d ended with status %x\n", i, status);
  }
  for (int i = 0; i < kWorks; ++i) measure(measured, i, "later");
  for (int i = 0; i < kWorks; ++i) run_on(small, kSmall, kWork[i]);

  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, (size_t)sysconf(_SC_THREAD_STACK_MIN));
  for (int i = 0; i < 4; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, &attributes, work_in_thread, NULL) || pthread_join(thread, NULL)) abort();
  }

  // The kernel's part depends on the processor.
  const unsigned long of_kernel = getauxval(51 /* AT_MINSIGSTKSZ */);
  const size_t bytes = (of_kernel ? of_kernel : 2048) + kMost;
  const stack_t stack = {.ss_sp = make_stack((bytes + 4095) & ~(size_t)4095), .ss_size = bytes};
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = work_in_handler;
  action.sa_flags = SA_ONSTACK;
  if (sigaltstack(&stack, NULL) || sigaction(SIGUSR1, &action, NULL)) abort();
  for (int i = 0; i < 4; ++i) raise(SIGUSR1);
  puts("small stacks: ok");
  return 0;
}
