// To be built with a sanitizer, or run under a debugger of memory. argv: works, cancels (for which the C library opens
// the unwinder: the loader allocates), leaks, reads_freed, races, races_and_ends (by _exit).
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int shared;

static void* allocate(void* unused) {
  for (size_t bytes = 1; bytes < 2000; ++bytes) {
    char* block = memset(malloc(bytes), 1, bytes);
    block = reallocarray(block, bytes, 2);
    if (block[bytes - 1] != 1) exit(5);
    free(block);
  }
  return unused;
}

static void* count(void* unused) {
  for (int i = 0; i < 1000; ++i) ++shared;
  return unused;
}

static void* wait(void* unused) {
  for (;;) pause();
  return unused;
}

static void cancel(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, wait, NULL);
  pthread_cancel(thread);
  pthread_join(thread, NULL);
}

static void in_threads(void* (*run)(void*)) {
  pthread_t threads[3];
  for (int i = 0; i < 3; ++i) pthread_create(&threads[i], NULL, run, NULL);
  for (int i = 0; i < 3; ++i) pthread_join(threads[i], NULL);
}

int main(int words, char** arguments) {
  const char* what = words > 1 ? arguments[1] : "works";
  in_threads(allocate);
  free(strdup("copied"));
  char* volatile block = memset(malloc(77), 1, 77);
  if (strcmp(what, "leaks") == 0) block = NULL;
  free(block);
  if (strcmp(what, "frees_twice") == 0) free(block);
  if (strcmp(what, "reads_freed") == 0 && block[3] == 9) printf("nine\n");
  if (strcmp(what, "cancels") == 0) cancel();
  if (strncmp(what, "races", 5) == 0) in_threads(count);
  printf("%s\n", what);
  fflush(stdout);
  if (strcmp(what, "races_and_ends") == 0) _exit(0);
  return 0;
}
