// One link of a chain of preloaded libraries: its puts names the library and goes on to the next puts, found by
// dlsym(RTLD_NEXT). Built twice with another NAME. With the caller lost, the look-up would find this puts again.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int puts(const char* text) {
  static int depth = 0;
  if (++depth > 1) {
    static const char kLost[] = "dlsym(RTLD_NEXT) found its own caller\n";
    if (write(STDERR_FILENO, kLost, sizeof kLost - 1) < 0) _exit(4);
    _exit(3);
  }
  int (*next)(const char*) = (int (*)(const char*))dlsym(RTLD_NEXT, "puts");
  if (!next) abort();
  char longer[200];
  snprintf(longer, sizeof longer, NAME ": %s", text);
  const int result = next(longer);
  --depth;
  return result;
}
