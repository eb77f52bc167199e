// Runs one case of runtime_native.cpp: runtime_native CASE [PLUGIN]. With a plugin the case runs in there. This
// program's own copy of the library has host memory in use by then, and has not asked for CUDA.
#include <cistern/cistern.h>
#include <dlfcn.h>

#include <cstdio>

#include "tests/library/runtime_native.hpp"

int main(int count, char** arguments) {
  if (count < 2) return 2;
  void* const own = cistern_allocate(100, 16);
  int (*run)(const char*) = run_runtime_native;
  if (count > 2) {
    void* const plugin = dlopen(arguments[2], RTLD_NOW | RTLD_LOCAL);
    if (!plugin) return std::printf("FAILED: %s\n", dlerror()), 1;
    run = reinterpret_cast<int (*)(const char*)>(dlsym(plugin, "run_runtime_native"));
  }
  const int code = run(arguments[1]);
  return cistern_deallocate(own) == CISTERN_OK ? code : 1;
}
