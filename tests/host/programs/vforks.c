// vfork with exec, and with _exit: the children share memory, so only the parent may report.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
  int status = 0;
  const pid_t plain = vfork();
  if (plain == 0) _exit(3);
  waitpid(plain, &status, 0);
  printf("the first child said %d\n", WEXITSTATUS(status));
  const pid_t other = vfork();
  if (other == 0) {
    char* const arguments[] = {"true", NULL};
    char* const empty[] = {NULL};
    execve("/bin/true", arguments, empty);
    _exit(4);
  }
  waitpid(other, &status, 0);
  printf("the second child said %d\n", WEXITSTATUS(status));
  void* volatile block = malloc(10);
  return block ? 0 : 1;
}
