// Forks for argv[1] milliseconds while other threads hold the locks that the C library takes for a fork, and allocate
// meanwhile: those of streams, of the list of streams, of the name service, of the loader. A watch ends a process that
// does not get on for ten seconds.
#include <dlfcn.h>
#include <locale.h>
#include <netdb.h>
#include <pthread.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kLineBytes = 200000, kLines = 4, kWatchSeconds = 10 };
static FILE* lines;
static atomic_int stop;
static atomic_long steps[6], forks;

static void* read_lines(void* unused) {
  for (; !stop; ++steps[0]) {
    char* line = NULL;
    size_t room = 0;
    rewind(lines);
    while (getline(&line, &room, lines) > 0) {
      free(line);
      line = NULL;
      room = 0;
    }
    free(line);
  }
  return unused;
}

static void* flush_all(void* unused) {
  for (; !stop; ++steps[1]) fflush(NULL);
  return unused;
}

static void* ask_names(void* unused) {
  for (; !stop; ++steps[2]) {
    struct addrinfo* found = NULL;
    if (!getpwnam("root")) abort();
    if (getaddrinfo("localhost", NULL, NULL, &found) == 0) freeaddrinfo(found);
  }
  return unused;
}

static void* load(void* unused) {
  for (; !stop; ++steps[3]) {
    void* const library = dlopen("libm.so.6", RTLD_NOW);
    if (!library || !dlsym(library, "cos")) abort();
    dlclose(library);
    if (dlsym(RTLD_DEFAULT, "no_such_function")) abort();
  }
  return unused;
}

static void* allocate(void* unused) {
  for (; !stop; ++steps[4]) {
    void* volatile blocks[40];
    for (int i = 0; i < 40; ++i) blocks[i] = malloc((size_t)i * i * 97);
    for (int i = 0; i < 40; ++i) free(blocks[i]);
  }
  return unused;
}

static void* set_locale(void* unused) {
  for (; !stop; ++steps[5]) setlocale(LC_ALL, steps[5] & 1 ? "C" : "C.UTF-8");
  return unused;
}

static void* watch(void* unused) {
  long before = -1;
  for (int still = 0; still < kWatchSeconds * 10; usleep(100000)) {
    still = forks == before ? still + 1 : 0;
    before = forks;
  }
  static const char kHung[] = "hung\n";
  if (write(STDOUT_FILENO, kHung, sizeof kHung - 1)) kill(getpid(), 9);
  return unused;
}

static int milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int)(now.tv_sec % 100000 * 1000 + now.tv_nsec / 1000000);
}

int main(int count, char** arguments) {
  lines = tmpfile();
  char* const text = malloc(kLineBytes);
  memset(text, 'x', kLineBytes);
  text[kLineBytes - 1] = '\n';
  for (int i = 0; i < kLines; ++i) fwrite(text, 1, kLineBytes, lines);
  void* (*const actors[])(void*) = {read_lines, flush_all, ask_names, load, allocate, set_locale};
  pthread_t threads[6], watcher;
  pthread_create(&watcher, NULL, watch, NULL);
  for (int i = 0; i < 6; ++i) pthread_create(&threads[i], NULL, actors[i], NULL);
  const int until = milliseconds() + (count > 1 ? atoi(arguments[1]) : 1000);
  int failed = 0;
  for (; milliseconds() < until; ++forks) {
    const pid_t child = fork();
    if (child == 0) {
      void* volatile block = malloc(100000);
      free(block);
      _exit(0);
    }
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) ++failed;
  }
  stop = 1;
  for (int i = 0; i < 6; ++i) pthread_join(threads[i], NULL);
  free(text);  // until here: longer than the interval of samples, it is in every child's report
  printf("%d children failed\n", failed);
  return failed != 0;
}
