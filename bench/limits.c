/* How many blocks a program gets under a limit of its own, and how much memory mlockall locks: run by limits.py.
 *
 *     limits as|data|start MIB BYTES    takes blocks of BYTES, writes into each, until malloc refuses; prints MB
 *     limits locked                     prints VmLck after mlockall, in MB
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

static double locked_mb(void) {
  char line[256];
  long kib = 0;
  FILE* const status = fopen("/proc/self/status", "r");
  while (status && fgets(line, sizeof line, status)) sscanf(line, "VmLck: %ld", &kib);
  return (double)kib / 1024;
}

int main(int count, char** given) {
  if (count == 2 && !strcmp(given[1], "locked")) {
    *(volatile char*)malloc(8 << 20) = 1;
    if (mlockall(MCL_CURRENT | MCL_FUTURE)) return 1;
    printf("%.1f\n", locked_mb());
    return 0;
  }
  if (count != 4) return 2;
  const struct rlimit limit = {(rlim_t)atol(given[2]) << 20, (rlim_t)atol(given[2]) << 20};
  if (strcmp(given[1], "start") && setrlimit(strcmp(given[1], "data") ? RLIMIT_AS : RLIMIT_DATA, &limit)) return 1;
  const size_t bytes = (size_t)atol(given[3]);
  size_t blocks = 0;
  for (char* block; (block = malloc(bytes)); ++blocks) *(volatile char*)block = 1;
  printf("%zu\n", blocks * bytes >> 20);
  return 0;
}
