// A pointer into a block of many pages, at the start of a page.
#include "misuse.h"

int main(void) {
  char* block = malloc(300000);
  free(about(block + ((uintptr_t) - (uintptr_t)block & 4095) + 65536));
  return 0;
}
