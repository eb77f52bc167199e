// A place among small blocks that was never given to anybody.
#include "misuse.h"

int main(void) {
  // Blocks of a size that nobody else asks for; behind the farthest lies room for more of them.
  char *first = malloc(2000), *second = malloc(2000);
  char* farther = first > second ? first : second;
  char* nearer = first > second ? second : first;
  free(about(farther + 3 * (farther - nearer)));
  return 0;
}
