// A variable on the stack is resized.
#include "misuse.h"

int main(void) {
  _Alignas(16) char variable[64] = "here";
  return realloc(about(variable), 400) == NULL;
}
