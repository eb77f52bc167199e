// The exported functions of the C library that read or change what a signal does, and where its handler runs.
#include <signal.h>

#include <atomic>

#include "shim/judged_copy/alternate_stacks.hpp"
#include "shim/lifecycle_signals.hpp"
#include "shim/process/lookup.hpp"

namespace {

using Handler = void (*)(int);
using Action = struct sigaction;

// Found without the dynamic linker: these may be called in a signal handler, or in a child of vfork.
template <class Function>
class Real {
 public:
  explicit constexpr Real(const char* name) : name_(name) {}
  Function* get() {
    Function* found = found_.load(std::memory_order_relaxed);
    if (!found)
      found_.store(found = reinterpret_cast<Function*>(cistern::next_definition(name_)), std::memory_order_relaxed);
    return found;
  }

 private:
  const char* const name_;
  std::atomic<Function*> found_{nullptr};
};

int call(Real<int(int, const Action*, Action*)>& real, int number, const Action* action, Action* old) {
  if (action) cistern::wait_for_end_by_signal();
  const int answer = real.get()(number, action, old);
  if (answer == 0 && old) cistern::show_entry_of_program(number, *old);
  if (answer == 0 && action) cistern::note_entry_of_program(number);
  return answer;
}

template <class Answer, class... Rest>
Answer call(Real<Answer(int, Rest...)>& real, int number, Rest... rest) {
  const cistern::EntryOfProgram as_left(number);
  return real.get()(number, rest...);
}

}  // namespace

#define SIGNAL_CALL(result, name, parameters, ...)                            \
  extern "C" [[gnu::visibility("default")]] result name parameters noexcept { \
    static constinit Real<result parameters> real(#name);                     \
    return call(real, __VA_ARGS__);                                           \
  }
SIGNAL_CALL(int, sigaction, (int number, const Action* action, Action* old), number, action, old)
SIGNAL_CALL(int, __sigaction, (int number, const Action* action, Action* old), number, action, old)
SIGNAL_CALL(Handler, signal, (int number, Handler handler), number, handler)
SIGNAL_CALL(Handler, bsd_signal, (int number, Handler handler), number, handler)
SIGNAL_CALL(Handler, ssignal, (int number, Handler handler), number, handler)
SIGNAL_CALL(Handler, sysv_signal, (int number, Handler handler), number, handler)
SIGNAL_CALL(Handler, __sysv_signal, (int number, Handler handler), number, handler)
SIGNAL_CALL(Handler, sigset, (int number, Handler handler), number, handler)
SIGNAL_CALL(int, sigignore, (int number), number)
SIGNAL_CALL(int, siginterrupt, (int number, int interrupt), number, interrupt)

extern "C" [[gnu::visibility("default")]] int sigaltstack(const stack_t* stack, stack_t* old) noexcept {
  static constinit Real<int(const stack_t*, stack_t*)> real("sigaltstack");
  const int answer = real.get()(stack, old);
  if (answer != 0 || !stack) return answer;
  const bool is_off = stack->ss_flags & SS_DISABLE;
  if (!is_off) cistern::note_stack_for_handlers(stack->ss_size);
  cistern::note_alternate_stack(is_off ? nullptr : stack->ss_sp, stack->ss_size);
  return answer;
}
