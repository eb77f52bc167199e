// Threads that allocate, grow and free blocks of all sizes and free each other's, with children that are forked
// meanwhile: each child allocates with a thread of its own and ends in another way. The first thread also calls what
// is interposed besides the malloc family.
// usage: threads ROUNDS CHILDREN
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kThreads = 3, kHandedOver = 16, kKept = 24 };

struct block {
  size_t bytes;  // with this head
  uint64_t mark;
};

static _Atomic(struct block*) handed_over[kHandedOver];
static int rounds;

static void die(const char* why) {
  fprintf(stderr, "%s\n", why);
  abort();
}

static uint64_t mark_of(size_t bytes) { return bytes * 0x9e3779b97f4a7c15u; }

static uint64_t* last_word(struct block* block) { return (uint64_t*)((char*)block + block->bytes) - 1; }

static struct block* marked(struct block* block, size_t bytes) {
  if (!block) die("no memory");
  block->bytes = bytes;
  block->mark = mark_of(bytes);
  *last_word(block) = mark_of(bytes);
  return block;
}

static void check(struct block* block) {
  if (block->mark != mark_of(block->bytes) || *last_word(block) != block->mark) die("a block was spoiled");
}

static void drop(struct block* block) {
  if (!block) return;
  check(block);
  free(block);
}

static size_t bytes_of_round(unsigned round) {
  if (round % 61 == 60) return (40u << 20) + 4096 * (round % 7);
  if (round % 17 == 16) return (1u << 20) + 8 * (round % 1000);
  if (round % 5 == 4) return 20000 + 8 * (round % 4000);
  return 32 + 8 * (round * 7 % 400);
}

static struct block* grown(struct block* block) {
  check(block);
  const size_t before = block->bytes, bytes = before + before / 2 / 8 * 8;
  struct block* moved = realloc(block, bytes);
  if (!moved || moved->bytes != before || moved->mark != mark_of(before)) die("realloc lost what was there");
  return marked(moved, bytes);
}

static void* work(void* number) {
  struct block* kept[kKept] = {0};
  for (unsigned round = (unsigned)(uintptr_t)number, end = round + (unsigned)rounds; round < end; ++round) {
    struct block** place = &kept[round % kKept];
    if (*place && round % 3 == 0) {
      *place = grown(*place);
      drop(atomic_exchange(&handed_over[round % kHandedOver], *place));
    } else {
      drop(*place);
    }
    *place = marked(malloc(bytes_of_round(round)), bytes_of_round(round));
  }
  for (int i = 0; i < kKept; ++i) drop(kept[i]);
  return NULL;
}

static void start(pthread_t* thread, uintptr_t number) {
  if (pthread_create(thread, NULL, work, (void*)number)) die("no thread");
}

static void child(int number) {
  pthread_t thread;
  start(&thread, 100);
  work(NULL);
  pthread_join(thread, NULL);
  void (*const ends[])(int) = {exit, _exit, quick_exit, _Exit};
  ends[number % 4](number);
}

static void handle(int signal) { (void)signal; }

static void call_what_is_interposed(void) {
  if (!dlsym(RTLD_DEFAULT, "puts") || dlsym(RTLD_NEXT, "no_such_function")) die("a look-up is wrong");
  void* const library = dlopen("libm.so.6", RTLD_LAZY);
  if (!library || !dlsym(library, "cos") || dlclose(library)) die("no library");
  if (prctl(PR_GET_DUMPABLE) < 0 || syscall(SYS_getpid) != getpid()) die("a system call is wrong");
  struct sigaction action = {.sa_handler = handle};
  if (sigaction(SIGUSR1, &action, NULL) || signal(SIGUSR2, handle) == SIG_ERR) die("signals");
  FILE* const nowhere = fopen("/dev/null", "w");
  if (!nowhere || malloc_info(0, nowhere) || fclose(nowhere)) die("no account of memory");
  if (mallinfo2().uordblks == 0) die("no memory in use");
  malloc_trim(0);
}

int main(int count, char** arguments) {
  if (count != 3) return 2;
  rounds = atoi(arguments[1]);
  const int children = atoi(arguments[2]);
  pthread_t threads[kThreads];
  for (uintptr_t i = 0; i < kThreads; ++i) start(&threads[i], i);
  call_what_is_interposed();
  for (int i = 0; i < children; ++i) {
    const pid_t started = fork();
    if (started < 0) die("no child");
    if (started == 0) child(i);
    int status;
    if (waitpid(started, &status, 0) != started || !WIFEXITED(status) || WEXITSTATUS(status) != i)
      die("a child failed");
  }
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  for (int i = 0; i < kHandedOver; ++i) drop(atomic_exchange(&handed_over[i], NULL));
  printf("%d threads and %d children, every block whole\n", kThreads, children);
  return 0;
}
