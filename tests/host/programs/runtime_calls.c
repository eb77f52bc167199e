// Calls of the C library that allocate on their way: threads, more exit handlers than its first table holds, dlopen,
// a failing dlsym, getline, stdio streams.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static int handlers_run = 0;
static void handler(void) {
  if (++handlers_run == 40) puts("40 handlers ran");
}

static void* in_thread(void* text) {
  char* line = NULL;
  if (asprintf(&line, "thread %s", (const char*)text) < 0) abort();
  return line;
}

int main(void) {
  for (int i = 0; i < 40; ++i)
    if (atexit(handler)) return 1;
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i)
    if (pthread_create(&threads[i], NULL, in_thread, "ran")) return 2;
  for (int i = 0; i < 4; ++i) {
    void* line = NULL;
    pthread_join(threads[i], &line);
    puts(line);
    free(line);
  }
  for (int i = 0; i < 3; ++i) {
    void* math = dlopen("libm.so.6", RTLD_NOW);
    double (*root)(double) = (double (*)(double))dlsym(math, "sqrt");
    printf("%g %s\n", root(16), dlsym(math, "nothing") ? "found" : "not found");
    dlclose(math);
  }
  printf("%s\n", dlopen("libnosuchlibrary.so", RTLD_NOW) ? "opened" : dlerror());
  char* line = NULL;
  size_t room = 0;
  FILE* self = fopen("/proc/self/status", "r");
  if (self && getline(&line, &room, self) > 0) printf("%.5s\n", line);
  free(line);
  fclose(self);
  return 0;
}
