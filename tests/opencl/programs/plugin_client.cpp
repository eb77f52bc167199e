// A program that knows no OpenCL loads a plugin that does, RTLD_LOCAL, twice; the plugin is named by the argument.
// harness: recycles
// harness: arguments={directory}/libplugin.so
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
  int made = 0;
  for (int load = 0; load < 2; ++load) {
    void* plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (!plugin) {
      printf("no plugin: %s\n", dlerror());
      return 90;
    }
    auto run = reinterpret_cast<int (*)(int)>(dlsym(plugin, "plugin_run"));
    made += run(10 * load);
    printf("run %d done\n", load);
    dlclose(plugin);
  }
  printf("memory objects made: %d\n", made);
  return 0;
}
