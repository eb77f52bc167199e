/* executes HOW PROGRAM: starts `PROGRAM lose` and, when that has ended, puts `PROGRAM use exit` in its own place by the
   function HOW of the C library. An exec that fails comes before, and changes nothing: neither which descriptors a
   program that is executed gets, nor errno, which it prints. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void run(char* const* arguments) {
  pid_t child;
  if (posix_spawn(&child, arguments[0], NULL, NULL, arguments, environ) == 0) waitpid(child, NULL, 0);
}

static int descriptors_that_stay(void) {
  int count = 0;
  for (int one = 3; one < 1024; ++one) {
    const int flags = fcntl(one, F_GETFD);
    count += flags >= 0 && !(flags & FD_CLOEXEC);
  }
  return count;
}

static void fail_to_execute(void) {
  const int before = descriptors_that_stay();
  execl("/none/of/these", "none", NULL);
  const int error = errno;
  printf("%s, %d more\n", strerror(error), descriptors_that_stay() - before);
  fflush(stdout);
}

int main(int count, char** arguments) {
  if (count != 3) return 2;
  const char* const how = arguments[1];
  char* const program = arguments[2];
  char* const lose[] = {program, "lose", NULL};
  char* const use[] = {program, "use", "exit", NULL};
  run(lose);
  fail_to_execute();
  if (!strcmp(how, "execl")) execl(program, program, "use", "exit", NULL);
  if (!strcmp(how, "execlp")) execlp(program, program, "use", "exit", NULL);
  if (!strcmp(how, "execle")) execle(program, program, "use", "exit", NULL, environ);
  if (!strcmp(how, "execv")) execv(program, use);
  if (!strcmp(how, "execvp")) execvp(program, use);
  if (!strcmp(how, "execve")) execve(program, use, environ);
  if (!strcmp(how, "execvpe")) execvpe(program, use, environ);
  if (!strcmp(how, "fexecve")) fexecve(open(program, O_RDONLY | O_CLOEXEC), use, environ);
  if (!strcmp(how, "execveat")) execveat(AT_FDCWD, program, use, environ, 0);
  return 3;
}
