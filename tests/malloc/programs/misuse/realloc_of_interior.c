// A pointer into a small block is resized.
#include "misuse.h"

int main(void) {
  char* block = malloc(400);
  return realloc(about(block + 16), 500) == NULL;
}
