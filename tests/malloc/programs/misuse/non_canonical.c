// An address that no pointer can have.
#include "misuse.h"

int main(void) {
  free(about((void*)0xdeadbeefdeadbee0));
  return 0;
}
