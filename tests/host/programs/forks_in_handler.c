// A timer's handler forks, argv[1] times, and so does main: the handler interrupts malloc, free and fork. A second
// argument starts a thread, so that the process has more than one.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int hits, failed;

static void fork_once(void) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  int status = -1;
  while (child > 0 && waitpid(child, &status, 0) < 0) continue;
  if (status != 0) failed = failed + 1;
}

static void handle(int signal) {
  (void)signal;
  fork_once();
  hits = hits + 1;
}

static void* wait_for_ever(void* unused) {
  while (1) pause();
  return unused;
}

int main(int count, char** arguments) {
  const int wanted = count > 1 ? atoi(arguments[1]) : 200;
  pthread_t thread;
  sigset_t alarm;
  sigemptyset(&alarm);
  sigaddset(&alarm, SIGALRM);
  pthread_sigmask(SIG_BLOCK, &alarm, NULL);
  if (count > 2) pthread_create(&thread, NULL, wait_for_ever, NULL);
  pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
  signal(SIGALRM, handle);
  const struct itimerval often = {.it_value = {.tv_usec = 1000}, .it_interval = {.tv_usec = 1000}};
  setitimer(ITIMER_REAL, &often, NULL);
  for (unsigned i = 0; hits < wanted; ++i) {
    void* volatile block = malloc(i % 3 ? 40000 : i % 5000);
    free(block);
    if (count <= 2 && i % 1000 == 0) fork_once();
  }
  printf("%d children failed\n", failed);
  return failed != 0;
}
