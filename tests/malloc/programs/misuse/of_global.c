// A static variable.
#include "misuse.h"

static _Alignas(16) char variable[64];

int main(void) {
  free(about(variable));
  return variable[0];
}
