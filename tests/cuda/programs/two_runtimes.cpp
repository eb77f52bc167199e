// Two runtimes of different versions in one process, each used by a library of its own: every call reaches the runtime
// that its caller was linked to.
// harness: recycles=device
// harness: link=none
// harness: simulator-only
#include <dlfcn.h>

#include "../say.hpp"

struct Plugin {
  int (*version)();
  int (*use)(unsigned value, int* made_device, int* made_pinned);
  int (*last_error)();
};

static Plugin load(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    say("%s", dlerror());
    exit(90);
  }
  Plugin plugin{};
  *reinterpret_cast<void**>(&plugin.version) = dlsym(library, "plugin_version");
  *reinterpret_cast<void**>(&plugin.use) = dlsym(library, "plugin_use");
  *reinterpret_cast<void**>(&plugin.last_error) = dlsym(library, "plugin_last_error");
  return plugin;
}

int main(int, char** argv) {
  const std::string self = argv[0], folder = self.substr(0, self.rfind('/') + 1);
  Plugin plugins[2] = {load((folder + "libplugin12.so").c_str()), load((folder + "libplugin13.so").c_str())};
  for (int round = 0; round < 3; ++round) {
    for (Plugin& plugin : plugins) {
      int device = 0, pinned = 0;
      const int wrong = plugin.use(round, &device, &pinned);
      made.device += device;
      made.pinned += pinned;
      say("runtime %d: %d wrong", plugin.version(), wrong);
    }
  }
  // The last error belongs to one runtime, not to the other.
  say("last errors: %d, %d", plugins[0].last_error(), plugins[1].last_error());
  return finish();
}
