// The same block with a mapping of its own twice in a row.
#include "misuse.h"

int main(void) {
  void* block = about(malloc(100 << 20));
  free(block);
  free(block);
  return 0;
}
