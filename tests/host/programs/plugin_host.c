// A C program that opens the library argv[1] privately and runs it.
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char** arguments) {
  void* plugin = count > 1 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!plugin) return fprintf(stderr, "%s\n", dlerror()), 1;
  int (*run)(void) = (int (*)(void))dlsym(plugin, "run_plugin");
  const int status = run ? run() : 2;
  dlclose(plugin);
  return status;
}
