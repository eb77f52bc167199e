// The exported functions of the C library that put another program into this process. They are passed on; the head of a
// family (process/family.hpp) hands the verdicts of the others on to that program. Safe in signal handlers and in
// children of vfork, as the C library's own.
#include <stdarg.h>
#include <unistd.h>

#include "shim/entry_passed_on.hpp"
#include "shim/lifecycle.hpp"
#include "shim/process/family.hpp"
#include "shim/process/system_filter.hpp"

namespace {

using Words = char* const*;

class HandedOver {
 public:
  explicit HandedOver(Words environment)
      : file_(cistern::is_head_of_family && !cistern::system_calls_are_filtered() && cistern::in_own_process()
                  ? cistern::hand_over_family(environment)
                  : cistern::kNotHandedOver) {}
  // The program is still the old one.
  ~HandedOver() { cistern::keep_family(file_); }
  HandedOver(const HandedOver&) = delete;
  HandedOver& operator=(const HandedOver&) = delete;

 private:
  const int file_;
};

template <class... Parameters>
int exec(std::atomic<int (*)(Parameters...)>& known, const char* name, Words environment, Parameters... arguments) {
  const HandedOver handed_over(environment);
  return cistern::pass_on(known, name, arguments...);
}

}  // namespace

// Our own calls do not go through the exports, which may be another library's.
#define EXEC_CALL(name, environment, parameters, types, ...)   \
  static int pass_on_##name parameters {                       \
    static constinit std::atomic<int(*) types> known{nullptr}; \
    return exec(known, #name, environment, __VA_ARGS__);       \
  }                                                            \
  extern "C" [[gnu::visibility("default")]] int name parameters noexcept { return pass_on_##name(__VA_ARGS__); }
EXEC_CALL(execve, environment, (const char* file, Words arguments, Words environment), (const char*, Words, Words),
          file, arguments, environment)
EXEC_CALL(execv, environ, (const char* file, Words arguments), (const char*, Words), file, arguments)
EXEC_CALL(execvp, environ, (const char* file, Words arguments), (const char*, Words), file, arguments)
EXEC_CALL(execvpe, environment, (const char* file, Words arguments, Words environment), (const char*, Words, Words),
          file, arguments, environment)
EXEC_CALL(fexecve, environment, (int file, Words arguments, Words environment), (int, Words, Words), file, arguments,
          environment)
EXEC_CALL(execveat, environment, (int folder, const char* file, Words arguments, Words environment, int flags),
          (int, const char*, Words, Words, int), folder, file, arguments, environment, flags)
#undef EXEC_CALL

// Those that have the arguments in a row, as the C library does it: on the stack, for who has no memory that is his
// own. Volatile: the header promises that the first is not null, which the C library's own do not count on.
#define LISTING_CALL(name, call)                                                                             \
  extern "C" [[gnu::visibility("default")]] int name(const char* file, const char* argument, ...) noexcept { \
    const char* const volatile first = argument;                                                             \
    std::size_t count = first ? 1 : 0;                                                                       \
    va_list row;                                                                                             \
    va_start(row, argument);                                                                                 \
    while (count && va_arg(row, char*)) ++count;                                                             \
    va_end(row);                                                                                             \
    char** const arguments = static_cast<char**>(__builtin_alloca((count + 1) * sizeof(char*)));             \
    arguments[0] = const_cast<char*>(first);                                                                 \
    va_start(row, argument);                                                                                 \
    for (std::size_t i = 1; i <= count; ++i) arguments[i] = va_arg(row, char*);                              \
    const int answer = call;                                                                                 \
    va_end(row);                                                                                             \
    return answer;                                                                                           \
  }
LISTING_CALL(execl, pass_on_execv(file, arguments))
LISTING_CALL(execlp, pass_on_execvp(file, arguments))
LISTING_CALL(execle, pass_on_execve(file, arguments, va_arg(row, Words)))
#undef LISTING_CALL
