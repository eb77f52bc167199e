// A plugin that is loaded with RTLD_DEEPBIND, so that its calls go to its own libraries first: past any exported
// function; so do those of the runtime that it brings along. What it made is not in the report.
// harness: figures=off
// harness: link=none
// harness: simulator-only
#include <dlfcn.h>

#include "../say.hpp"

int main(int, char** argv) {
  const std::string self = argv[0], folder = self.substr(0, self.rfind('/') + 1);
  void* library = dlopen((folder + "libplugin13.so").c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (!library) {
    say("%s", dlerror());
    return 90;
  }
  auto use = reinterpret_cast<int (*)(unsigned, int*, int*)>(dlsym(library, "plugin_use"));
  for (unsigned round = 0; round < 4; ++round) {
    int device = 0, pinned = 0;
    say("%d wrong", use(round, &device, &pinned));
    made.device += device;
    made.pinned += pinned;
  }
  return finish();
}
