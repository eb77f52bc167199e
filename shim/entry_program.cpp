// The library run as a program: says what it is, how it is used, which options there are, and (--doctor) why the memory
// of a program is not caught. The dynamic linker has done its part, but nobody prepared the C library for a program,
// and its malloc would be ours: only system calls are made here, and memory is the library's own. So it needs no second
// program beside it, says the same in every container, and costs a process that preloads the library nothing but
// addresses: all of it lies behind what is ever touched, without a name or a pointer for the loader to look at.
#include <unistd.h>

#include <string_view>

#include "pool/base/process_start.hpp"
#include "shim/doctor/doctor.hpp"
#include "shim/doctor/system.hpp"
#include "shim/process/environment.hpp"

#ifdef __aarch64__
#define CISTERN_LOADER "/lib/ld-linux-aarch64.so.1"
#define CISTERN_ENTRY
#else
#define CISTERN_LOADER "/lib64/ld-linux-x86-64.so.2"
#define CISTERN_ENTRY gnu::force_align_arg_pointer,
#endif

// What makes a program of a library, beside its entry point (-e): without it the kernel would start it all the same,
// but nothing would be relocated. Retained: nobody refers to it, and the linker drops what is not used.
extern "C" [[gnu::used, gnu::retain, gnu::section(".interp")]] const char cistern_loader[] = CISTERN_LOADER;

namespace cistern {
namespace {

using doctor::say;
using doctor::say_error;

enum ExitCode : std::uint8_t { kDone = 0, kUsage = 2 };

void say_usage() {
  say("cistern " CISTERN_VERSION
      ": pools the memory of unchanged programs, and reports how they use it\n"
      "usage: LD_PRELOAD=/path/to/libcistern.so [OPTION=VALUE]... PROGRAM [ARGUMENT]...\n"
      "       libcistern.so --doctor [--run] -- PROGRAM [ARGUMENT]...\n"
      "           says whether its memory will be seen, and why not; --run runs and observes it\n"
      "       libcistern.so --version | --help\n"
      "options, by environment variables (their defaults):\n");
#define OPTION(type, member, name, fallback, accepts, text) \
  say("  " #name " (" fallback ")\n      ");                \
  if (sizeof accepts > 1) say(accepts ": ");                \
  say(text "\n");
#include "shim/options.def"
}

int wrong_usage(std::string_view what, std::string_view argument = {}) {
  String line("libcistern.so: ");
  line.append(what).append(argument).append("; try --help\n");
  say_error(line);
  return kUsage;
}

int answer_doctor(char** arguments) {
  bool run = false;
  for (; *arguments && **arguments == '-'; ++arguments) {
    const std::string_view flag = *arguments;
    if (flag == "--") {
      ++arguments;
      break;
    }
    if (flag != "--run") return wrong_usage("--doctor has no option ", flag);
    run = true;
  }
  if (!*arguments) return wrong_usage("--doctor needs a program");
  return doctor::examine({arguments, early_environment(), run});
}

int answer(char** arguments) {
  const std::string_view flag = *arguments ? *arguments : "--help";
  if (flag == "--doctor") return answer_doctor(arguments + 1);
  if (flag != "--help" && flag != "--version") return wrong_usage("no such option: ", flag);
  if (*arguments && arguments[1]) return wrong_usage(flag, " takes no arguments");
  if (flag == "--version")
    say("cistern " CISTERN_VERSION "\n");
  else
    say_usage();
  return kDone;
}

}  // namespace
}  // namespace cistern

extern "C"[[ CISTERN_ENTRY noreturn, gnu::used, gnu::visibility("hidden") ]] void cistern_program() {
  char** const arguments = cistern::start_arguments();  // behind the program's name, which may be missing
  cistern::doctor::end(cistern::answer(*arguments ? arguments + 1 : arguments));
}
