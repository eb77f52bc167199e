// The same block of many pages twice in a row.
#include "misuse.h"

int main(void) {
  void* block = about(malloc(100000));
  free(block);
  free(block);
  return 0;
}
