// In a child that was forked beside a thread: `free_again_in_child C` lets the C library free a block for the second
// time, as it does with what a thread forgot when it was cut off; `... program` does it itself.
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void* idle(void* none) {
  pause();
  return none;
}

static void free_twice(int by_program) {
  struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM}, *found = NULL;
  if (getaddrinfo("127.0.0.1", "80", &hints, &found) || found->ai_next) _exit(3);
  struct addrinfo again = *found;
  freeaddrinfo(found);
  if (by_program) {
    free(found);
  } else {
    // The call reads the block once more: what stands there is as it was, but for the allocator's two words.
    memcpy((char*)found + 16, (char*)&again + 16, sizeof again - 16);
    found->ai_canonname = NULL;
    found->ai_next = NULL;
    freeaddrinfo(found);
  }
}

int main(int count, char** arguments) {
  pthread_t thread;
  pthread_create(&thread, NULL, idle, NULL);
  pid_t child = fork();
  if (child == 0) {
    free_twice(count > 1 && strcmp(arguments[1], "program") == 0);
    void* block = malloc(64);
    _exit(block ? 0 : 4);
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("%s %d\n", WIFSIGNALED(status) ? "signal" : "status",
         WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  return 0;
}
