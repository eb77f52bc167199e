/* hungry WHAT: asks for host memory until, or where, there is none, twice, and goes on. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  const struct rlimit limit = {512 << 20, 512 << 20};
  if (!strcmp(what, "as")) setrlimit(RLIMIT_AS, &limit);
  if (!strcmp(what, "data")) setrlimit(RLIMIT_DATA, &limit);
  const size_t bytes = !strcmp(what, "machine") ? (size_t)1 << 46 : (size_t)768 << 20;
  for (int turn = 0; turn < 2; ++turn) {
    errno = 0;
    volatile size_t never = (size_t)PTRDIFF_MAX + 1;
    void* const block = !strcmp(what, "never") ? malloc(never) : turn ? calloc(bytes / 16, 16) : malloc(bytes);
    printf("%s %d\n", block ? "block" : "null", errno);
    free(block);
  }
  return 0;
}
