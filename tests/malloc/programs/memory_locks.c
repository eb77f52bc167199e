// Blocks that the program locks in memory (mlock) and gives back as they are. Prints how much of the process is locked,
// in KiB, when each is free: none, as the C library's unmapping leaves it.
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kBytes = 1 << 20, kLocked = 32 << 10 };

static long locked_kib(void) {
  FILE* file = fopen("/proc/self/status", "r");
  char line[256];
  long kib = -1;
  while (kib < 0 && fgets(line, sizeof line, file)) sscanf(line, "VmLck: %ld", &kib);
  fclose(file);
  return kib;
}

static char* block(void) {
  char* memory = malloc(kBytes);
  memset(memory, 1, kBytes);
  return memory;
}

// In the middle.
static void lock_some(char* memory) {
  errno = 77;
  if (mlock(memory + kBytes / 2, kLocked) || errno != 77 || locked_kib() < kLocked >> 10) exit(3);
}

static void say(const char* what) { printf("%s: %ld\n", what, locked_kib()); }

int main(void) {
  char* memory = block();
  if (mlock(memory, kLocked) && (errno == EPERM || errno == ENOMEM)) return puts("not permitted"), 0;
  free(memory);
  say("the first pages");

  lock_some(memory = block());
  free(memory);
  say("pages in the middle");

  memory = calloc(1, kBytes);
  for (size_t i = 0; i < kBytes; ++i)
    if (memory[i]) return puts("not zero"), 1;
  free(memory);

  memory = block();
  if (mlock2(memory, kLocked, MLOCK_ONFAULT)) return 4;
  free(memory);
  say("on fault");

  lock_some(memory = block());
  munlock(memory + kBytes / 2, kLocked);
  say("unlocked before");
  free(memory);

  lock_some(memory = block());
  memory = realloc(memory, kBytes / 4);
  say("shrunk");
  free(memory);

  lock_some(memory = block());
  char* behind = block();
  memory = realloc(memory, 4 * kBytes);
  for (size_t i = 0; i < kBytes; ++i)
    if (memory[i] != 1) return puts("lost"), 1;
  free(memory);
  free(behind);
  say("grown");

  lock_some(memory = block());
  fflush(stdout);
  if (fork() == 0) {
    free(memory);
    _exit(locked_kib() != 0);
  }
  int status;
  wait(&status);
  free(memory);
  printf("in a child: %d\n", status);

  lock_some(memory = block());
  munlockall();
  free(memory);
  say("all unlocked");

  errno = 0;
  const int refused = mlock((char*)16, 1);
  printf("refused: %d %d\n", refused, errno == ENOMEM);
  return 0;
}
