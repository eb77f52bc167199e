// Prints one line through whatever chain of puts is preloaded, and looks symbols up by a handle and in vain.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
  puts("hello");
  void* math = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
  if (!math) return 1;
  double (*root)(double) = (double (*)(double))dlsym(math, "sqrt");
  printf("root of 81 is %g\n", root ? root(81) : -1.0);
  printf("missing: %s\n", dlsym(math, "no_such_function") ? "found" : "not found");
  printf("reason given: %s\n", dlerror() ? "yes" : "no");
  return 0;
}
