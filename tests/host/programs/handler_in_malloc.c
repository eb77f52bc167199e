// A timer's handler ends the process while the program is in turn inside malloc and free, and outside of them.
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

static void end(int signal) {
  (void)signal;
  _exit(7);
}

int main(int count, char** arguments) {
  signal(SIGALRM, end);
  const struct itimerval soon = {.it_value = {.tv_usec = 1000 + (count > 1 ? atoi(arguments[1]) : 0)}};
  setitimer(ITIMER_REAL, &soon, NULL);
  while (1) {
    void* volatile blocks[50];
    for (int i = 0; i < 50; ++i) blocks[i] = malloc((size_t)i * 997);
    for (int i = 0; i < 50; ++i) free(blocks[i]);
    for (volatile int i = 0; i < 20000; ++i) continue;
  }
}
