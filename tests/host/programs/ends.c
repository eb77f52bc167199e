// Ends its process in the way that argv[1] names, with status 7. Allocates first, so that there is something to count.
#define _GNU_SOURCE
#include <err.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void* exit_from_thread(void* unused) {
  (void)unused;
  exit(7);
}

static void* outlive_main(void* unused) {
  (void)unused;
  usleep(20000);
  return NULL;
}

static void end_in_handler(int signal) {
  (void)signal;
  _exit(7);
}

int main(int count, char** arguments) {
  const char* way = count > 1 ? arguments[1] : "";
  void* volatile block = malloc(1234);
  pthread_t thread;
  if (!strcmp(way, "return")) return block ? 7 : 1;
  if (!strcmp(way, "exit")) exit(7);
  if (!strcmp(way, "_exit")) _exit(7);
  if (!strcmp(way, "_Exit")) _Exit(7);
  if (!strcmp(way, "quick_exit")) quick_exit(7);
  if (!strcmp(way, "errx")) errx(7, "told");
  if (!strcmp(way, "thread")) {
    pthread_create(&thread, NULL, exit_from_thread, NULL);
    pthread_join(thread, NULL);
  }
  if (!strcmp(way, "last_thread")) {
    pthread_create(&thread, NULL, outlive_main, NULL);
    pthread_exit(NULL);
  }
  if (!strcmp(way, "handler")) {
    signal(SIGTERM, end_in_handler);
    raise(SIGTERM);
  }
  if (!strcmp(way, "small_stack_handler")) {
    static char stack[16384];
    const stack_t small = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&small, NULL);
    struct sigaction action = {.sa_handler = end_in_handler, .sa_flags = SA_ONSTACK};
    sigaction(SIGTERM, &action, NULL);
    raise(SIGTERM);
  }
  if (!strcmp(way, "killed")) raise(SIGKILL);
  if (!strcmp(way, "abort")) abort();
  return 1;
}
