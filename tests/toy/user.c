/* A program of the toy driver: blocks that come again, one that is never freed, a fork, an end of memory. Prints what
 * it sees; what differs by what comes from a pool is on stderr. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "toy.h"

#define SHOW(call) printf("%s: %s\n", #call, toy_error(call))

static toy_context* context;

static void* forgotten_block(size_t bytes) {
  void* block = NULL;
  SHOW(toy_allocate(context, bytes, &block));
  memset(block, 7, bytes);
  return block;
}

static void free_memory(const char* when) {
  size_t bytes = 0;
  toy_free_memory(context, &bytes);
  printf("%s: %zu bytes free\n", when, bytes);
}

int main(void) {
  void* block = NULL;
  char text[8] = "unread";
  SHOW(toy_context_create(&context));
  for (int i = 0; i < 50; ++i) {
    if (toy_allocate(context, 100000, &block)) return 1;
    toy_copy(context, block, "carried", 8);
    toy_copy(context, text, block, 8);
    if (toy_free(context, block)) return 1;
  }
  puts(text);
  SHOW(toy_free(context, block));
  free_memory("after 50 blocks");
  void* kept = forgotten_block(5000);
  SHOW(toy_allocate(context, 60u << 20, &block)); /* only without what was kept */
  SHOW(toy_allocate(context, 60u << 20, &kept));
  SHOW(toy_free(context, block));
  SHOW(toy_context_destroy(context));
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    SHOW(toy_allocate(context, 3000, &block));
    fflush(stdout);
    exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("the child ended with %d\n", WEXITSTATUS(status));
  unsigned calls = 0;
  toy_calls(context, &calls);
  fprintf(stderr, "driver allocations: %u\n", calls);
  return 0;
}
