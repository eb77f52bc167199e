/* Allocates for Python programs: blocks of a size that says whose they are, which are never freed. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>

/* Not optimised away, nor lost. */
void* volatile kept[1 << 16];

void probe(int number) { kept[number] = malloc((size_t)1000000 + (size_t)number * 16); }

/* A C frame between Python ones. */
void call_back(void (*function)(void)) { function(); }

static void* run(void* function) {
  ((void (*)(void))function)();
  return NULL;
}

/* In a thread that Python did not start. */
void call_in_thread(void (*function)(void)) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, (void*)function)) abort();
  pthread_join(thread, NULL);
}

/* Allocates in a signal handler, wherever that interrupts. */
static void on_signal(int number) {
  (void)number;
  free(malloc(100));
}

void interrupt_every(int microseconds) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  sigaction(SIGPROF, &action, NULL);
  struct itimerval timer = {{0, microseconds}, {0, microseconds}};
  setitimer(ITIMER_PROF, &timer, NULL);
}

/* Until the process ends. */
void allocate_for_ever(void) {
  for (;;) free(malloc(100));
}
