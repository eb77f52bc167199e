// Holds argv[1] MiB in blocks of 10 KiB, frees all but a few, and ends.
#include <stdlib.h>
#include <string.h>

int main(int count, char** arguments) {
  const int blocks = (count > 1 ? atoi(arguments[1]) : 1) * 1024 / 10;
  void** held = malloc(sizeof(void*) * (size_t)blocks);
  for (int i = 0; i < blocks; ++i) held[i] = memset(malloc(10240), 1, 10240);
  for (int i = 3; i < blocks; ++i) free(held[i]);
  return 0;
}
