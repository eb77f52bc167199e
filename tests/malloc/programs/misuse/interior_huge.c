// A pointer far into a block with a mapping of its own.
#include "misuse.h"

int main(void) {
  char* block = malloc(100 << 20);
  free(about(block + (50 << 20)));
  return 0;
}
