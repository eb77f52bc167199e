// Forks twenty times with a library whose fork handlers allocate blocks of several sizes.
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern size_t atfork_bytes;

int main(void) {
  int failed = 0;
  for (int i = 0; i < 20; ++i) {
    atfork_bytes = (size_t[]){10, 100, 5000, 100000, 3000000}[i % 5];
    const pid_t child = fork();
    if (child == 0) _exit(0);
    int status = -1;
    if (waitpid(child, &status, 0) != child || status != 0) ++failed;
  }
  printf("%d children failed\n", failed);
  return failed;
}
