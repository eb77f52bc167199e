/* Leaves one block behind. Linked with gaps of 2 MiB between its segments: the C library then tells of its code only
   where that lies, not where the file begins (tests/host/CMakeLists.txt). */
#include <stdlib.h>

static void* volatile kept;

int main(void) {
  kept = malloc(100000);
  return 0;
}
