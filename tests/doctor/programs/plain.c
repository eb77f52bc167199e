// A program that anything can be preloaded into.
#include <stdlib.h>

int main(void) {
  void* volatile block = malloc(100);
  free(block);
  return 0;
}
