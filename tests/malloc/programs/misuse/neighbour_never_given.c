// The place behind the last block of its size: a block that the next malloc may give, and nobody has.
#include "misuse.h"

int main(void) {
  char *first = malloc(40), *second = malloc(40);
  char* farther = first > second ? first : second;
  char* nearer = first > second ? second : first;
  free(about(farther + (farther - nearer)));
  return 0;
}
