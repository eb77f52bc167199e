// An address where nothing is.
#include "misuse.h"

int main(void) {
  free(about((void*)0x1234567890));
  return 0;
}
