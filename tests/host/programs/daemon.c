// A daemon whose standard error is closed; its data file argv[1] gets descriptor 2. argv[2]: "closed" (closed before
// the start), "reopened" (the program closes 2 itself), "log" (2 becomes a log, opened for appending), "null"
// (/dev/null).
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int count, char** arguments) {
  if (count < 3) return 1;
  const char* way = arguments[2];
  if (strcmp(way, "closed") != 0) close(STDERR_FILENO);
  const char* path = strcmp(way, "null") == 0 ? "/dev/null" : arguments[1];
  const int appending = strcmp(way, "log") == 0 ? O_APPEND : 0;
  const int file = open(path, O_WRONLY | O_CREAT | appending, 0600);
  if (file != STDERR_FILENO) return 2;
  void* volatile block = malloc(100);
  return write(file, "data", 4) == 4 && block ? 0 : 3;
}
