// A library with a search path of its own: what it opens by name is found there, and only for it.
#include <dlfcn.h>

void* caller_open(const char* name, int mode) {
  void* opened = dlopen(name, mode);
  return opened;  // no tail call: dlopen goes by the address that it returns to
}
