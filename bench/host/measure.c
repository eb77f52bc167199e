// Runs a program and says what it used: measure DESCRIPTOR PROGRAM ARGUMENTS... writes one line of JSON to DESCRIPTOR.
// Linux counts the memory of the process that calls exec into the new program's peak; this one is linked statically
// and stays small, so that even /bin/true is measured right. CHILD_PRELOAD becomes the program's LD_PRELOAD.
#define _DEFAULT_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long microseconds(struct timeval time) { return time.tv_sec * 1000000LL + time.tv_usec; }

static long long now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

int main(int count, char** arguments) {
  if (count < 3) return 2;
  const int descriptor = atoi(arguments[1]);
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  const char* preload = getenv("CHILD_PRELOAD");
  if (preload != NULL && *preload != 0) setenv("LD_PRELOAD", preload, 1);
  unsetenv("CHILD_PRELOAD");
  const long long start_ns = now_ns();
  const pid_t child = vfork();
  if (child == 0) {
    execvp(arguments[2], arguments + 2);
    _exit(127);
  }
  int status = 0;
  struct rusage usage;
  if (child < 0 || wait4(child, &status, 0, &usage) != child) return 1;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  dprintf(descriptor,
          "{\"code\": %d, \"user_us\": %lld, \"system_us\": %lld, \"peak_kib\": %ld, \"faults\": %ld, "
          "\"wall_us\": %lld}\n",
          code, microseconds(usage.ru_utime), microseconds(usage.ru_stime), usage.ru_maxrss, usage.ru_minflt,
          (now_ns() - start_ns) / 1000);
  return 0;
}
