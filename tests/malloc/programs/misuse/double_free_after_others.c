// Other blocks of its size are freed between the two frees.
#include "misuse.h"

int main(void) {
  void* others[500];
  void* block = malloc(40);
  for (int i = 0; i < 500; ++i) others[i] = malloc(40);
  about(block);
  free(block);
  for (int i = 0; i < 500; ++i) free(others[i]);
  free(block);
  return 0;
}
