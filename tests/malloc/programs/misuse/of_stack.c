// A variable on the stack.
#include "misuse.h"

int main(void) {
  _Alignas(16) char variable[64] = "here";
  free(about(variable));
  return variable[0];
}
