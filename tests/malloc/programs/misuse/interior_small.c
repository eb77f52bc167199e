// A pointer into a small block.
#include "misuse.h"

int main(void) {
  char* block = malloc(400);
  free(about(block + 16));
  return 0;
}
