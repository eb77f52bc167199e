// A freed block is resized.
#include "misuse.h"

int main(void) {
  void* block = about(malloc(40));
  free(block);
  return realloc(block, 400) == NULL;
}
