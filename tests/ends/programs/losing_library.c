// A library that loses a block.
#include <stdlib.h>

void lose_in_library(void) {
  void* volatile block = malloc(777);
  block = 0;
  (void)block;
}
