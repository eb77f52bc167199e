// Forks six children while four threads allocate; each child allocates argv[1] blocks, keeps them, and exits.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int stop = 0;

static void* allocate_until_told(void* unused) {
  while (!stop) {
    void* volatile block = malloc(100);
    free(block);
  }
  return unused;
}

int main(int count, char** arguments) {
  const int blocks = count > 1 ? atoi(arguments[1]) : 0;
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, allocate_until_told, NULL);
  for (int i = 0; i < 20000; ++i) {
    void* volatile block = malloc(10);
    free(block);
  }
  int failed = 0;
  for (int child = 0; child < 6; ++child) {
    const pid_t pid = fork();
    if (pid == 0) {
      for (int i = 0; i < blocks; ++i) {
        void* volatile kept = malloc(1000);
        if (!kept) _exit(1);
      }
      exit(0);
    }
    int status = 0;
    if (waitpid(pid, &status, 0) != pid || status != 0) ++failed;
  }
  stop = 1;
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  printf("%d children failed\n", failed);
  return failed;
}
