// Prints malloc_info on stdout, and what malloc_stats says on stderr.
#include <malloc.h>
#include <stdlib.h>

int main(void) {
  void* volatile blocks[3] = {malloc(100), malloc(50000), malloc(5 << 20)};
  malloc_stats();
  if (malloc_info(0, stdout)) return 1;
  for (int i = 0; i < 3; ++i) free(blocks[i]);
  return 0;
}
