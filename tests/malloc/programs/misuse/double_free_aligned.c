// The same aligned block twice in a row.
#include "misuse.h"

int main(void) {
  void* block = about(aligned_alloc(4096, 5000));
  free(block);
  free(block);
  return 0;
}
