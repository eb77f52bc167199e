// Blocks change hands between the program and a plugin that is opened with RTLD_DEEPBIND, so that its malloc is found
// before the program's. argv: the plugin; from_plugin (the program frees and resizes what the plugin allocated),
// from_program (the other way round).
#include <dlfcn.h>
#include <malloc.h>

#include <cstring>
#include <string_view>

#include "check.hpp"

namespace {

struct Calls {
  void* (*allocate)(size_t);
  void* (*resize)(void*, size_t);
  void (*free)(void*);
};

// Blocks of every size, born here, resized and freed there.
void hand_over(const Calls& from, const Calls& to) {
  for (size_t bytes : {1, 24, 100, 1000, 5000, 40000, 200000, 3 << 20}) {
    auto filled = [&] {
      void* block = from.allocate(bytes);
      REQUIRE(block && malloc_usable_size(block) >= bytes);
      return memset(block, 0x33, bytes);
    };
    to.free(filled());
    for (size_t wanted : {bytes / 2 + 1, bytes + 1, 3 * bytes + 5000}) {
      auto* moved = static_cast<unsigned char*>(to.resize(filled(), wanted));
      REQUIRE(moved && malloc_usable_size(moved) >= wanted);
      for (size_t i = 0; i < (bytes < wanted ? bytes : wanted); ++i) REQUIRE(moved[i] == 0x33);
      memset(moved, 0x44, wanted);
      moved = static_cast<unsigned char*>(from.resize(moved, bytes));
      REQUIRE(moved && moved[0] == 0x44);
      to.free(moved);
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) return 2;
  void* library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (!library) check::fail("%s", dlerror());
  const Calls program = {malloc, realloc, free};
  const Calls plugin = {reinterpret_cast<void* (*)(size_t)>(dlsym(library, "plugin_allocate")),
                        reinterpret_cast<void* (*)(void*, size_t)>(dlsym(library, "plugin_resize")),
                        reinterpret_cast<void (*)(void*)>(dlsym(library, "plugin_free"))};
  REQUIRE(plugin.allocate && plugin.resize && plugin.free);
  const bool from_plugin = arguments[2] == std::string_view("from_plugin");
  from_plugin ? hand_over(plugin, program) : hand_over(program, plugin);
  printf("deepbind: %s holds\n", arguments[2]);
  return 0;
}
