// Makes argv[1] blocks more than it would otherwise, frees all of them but five in a hundred, and says what it did.
#include <stdio.h>
#include <stdlib.h>

int main(int count, char** arguments) {
  const int blocks = count > 1 ? atoi(arguments[1]) : 0;
  int kept = 0;
  for (int i = 0; i < blocks; ++i) {
    char* volatile block = malloc(1024);
    if (!block) return 1;
    block[1023] = 'x';
    if (i % 100 < 5) {
      ++kept;
    } else {
      free(block);
    }
  }
  printf("%d blocks, %d kept\n", blocks, kept);
  return 0;
}
