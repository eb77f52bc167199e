// A page that the program mapped itself.
#include "misuse.h"

int main(void) {
  free(about(mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)));
  return 0;
}
