// The library run as a program: says what it is, how it is used, and which options there are. The dynamic linker has
// done its part, but nobody prepared the C library for a program: only system calls are made here.
#include <unistd.h>

#include <string_view>

#include "pool/base/system_call.hpp"

#ifdef __aarch64__
#define CISTERN_LOADER "/lib/ld-linux-aarch64.so.1"
#define CISTERN_ENTRY
#else
#define CISTERN_LOADER "/lib64/ld-linux-x86-64.so.2"
#define CISTERN_ENTRY gnu::force_align_arg_pointer,
#endif

// What makes a program of a library, beside its entry point (-e).
extern "C" [[gnu::used, gnu::section(".interp")]] const char cistern_loader[] = CISTERN_LOADER;

namespace cistern {
namespace {

void say(std::string_view text) {
  while (!text.empty()) {
    const long written =
        system_call(SYS_write, STDOUT_FILENO, reinterpret_cast<std::uintptr_t>(text.data()), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace
}  // namespace cistern

extern "C"[[ CISTERN_ENTRY noreturn, gnu::used, gnu::visibility("hidden") ]] void cistern_program() {
  using cistern::say;
  say("cistern " CISTERN_VERSION
      ": serves the memory of programs that are not changed, and reports on it\n"
      "usage: LD_PRELOAD=/path/to/libcistern.so [OPTION=VALUE]... PROGRAM [ARGUMENT]...\n"
      "options, by environment variables (their defaults):\n");
#define OPTION(type, member, name, fallback, text) say("  " #name " (" fallback ")\n      " text "\n");
#include "shim/options.def"
  for (;;) cistern::system_call(SYS_exit_group, 0);
}
