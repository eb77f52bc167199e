// Keeps 60 MB in blocks of 20,000 bytes, among thirty million pairs, and then 40 MB of 2,000: samples are drawn seldom,
// and each stands for many.
#include <stdlib.h>

enum { kSteps = 300, kPairs = 100000, kKept = 10, kSmall = 20000 };
static char* kept[kSteps * kKept + kSmall];
static int count;

static void keep(int blocks, size_t bytes) {
  for (const int end = count + blocks; count < end; ++count) {
    kept[count] = malloc(bytes);
    kept[count][0] = 1;
  }
}

int main(void) {
  for (int step = 0; step < kSteps; ++step) {
    for (int i = 0; i < kPairs; ++i) {
      void* volatile block = malloc(30000);
      free(block);
    }
    keep(kKept, 20000);
  }
  keep(kSmall, 2000);
  return 0;
}
