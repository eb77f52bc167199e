// A pointer one byte into a block.
#include "misuse.h"

int main(void) {
  char* block = malloc(40);
  free(about(block + 1));
  return 0;
}
