// Changes its directory and clears its environment before it ends.
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>

int main(void) {
  if (chdir("/")) return 1;
  clearenv();
  return 0;
}
