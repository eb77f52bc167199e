// The same small block twice in a row.
#include "misuse.h"

int main(void) {
  void* block = about(malloc(40));
  free(block);
  free(block);
  return 0;
}
