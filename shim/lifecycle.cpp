// Start, fork and the ends of the process.
//
// Preloaded: exit begins in our exit, or when main returns to our wrapper around it; the end is our rtld_fini, which
// the C library calls after every exit handler and which first runs the loader's, that is, every destructor. Ends
// without those (_exit, _Exit, quick_exit) report at once. errx and the C library's own exits reach the end only.
// As a layer: exit begins when the C library comes to our handler, and the end is another, registered by our
// destructor: the C library calls it when all destructors are done. Of _exit and its like we hear only for a gate
// (lifecycle_layer.hpp).
//
// Nobody reports from where a report could hang or lie: a vfork child (the parent's memory), a signal handler that
// interrupted this thread in malloc or under one of our locks, a handler on a small alternate stack. Such an end stays
// silent. Locks of other threads are no hindrance: those threads run on and release them. (Ends by a signal:
// lifecycle_signals.hpp.)
#include "shim/lifecycle.hpp"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <optional>

#include "pool/base/forked.hpp"
#include "pool/base/lock.hpp"
#include "pool/base/system_call.hpp"
#include "shim/core/core.hpp"
#include "shim/core/fork.hpp"
#include "shim/core/gate.hpp"
#include "shim/core/live.hpp"
#include "shim/core/maintenance.hpp"
#include "shim/core/requests.hpp"
#include "shim/core/suppressions_file.hpp"
#include "shim/host/hooks/hooks.hpp"
#include "shim/host/placement.hpp"
#include "shim/judging/judging.hpp"
#include "shim/lifecycle_layer.hpp"
#include "shim/lifecycle_signals.hpp"
#include "shim/lifecycle_stack.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/family.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/log.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/other_ranks.hpp"
#include "shim/process/output.hpp"
#include "shim/process/process.hpp"
#include "shim/process/record.hpp"
#include "shim/process/run.hpp"
#include "shim/process/standard_error.hpp"
#include "shim/process/system_filter.hpp"
#include "stats/counters.hpp"
#include "stats/sites.hpp"
#include "stats/unwind/unwinder.hpp"

// What pthread_atfork and at_quick_exit call. Those two are linked into each object, behind everything else of its
// code: every process would map that part of ours for them.
extern "C" {
extern void* __dso_handle;
int __cxa_at_quick_exit(void (*function)(void*), void* object) noexcept;
}

namespace cistern {
namespace {

using Main = int (*)(int, char**, char**);
using Action = void (*)();
using RegisterAtfork = int (*)(Action prepare, Action parent, Action child, void* object);
using Exit = void (*)(int);
using StartMain = int (*)(Main, int, char**, Action init, Action fini, Action rtld_fini, void* stack_end);

constexpr pid_t kUnknown = -1;
constinit std::atomic<pid_t> process_id{0};  // 0: not started; of this process, not of a vfork child
constinit Main program_main = nullptr;
constinit Action loader_fini = nullptr;
constinit std::atomic<Exit> real_exit{nullptr};
constinit std::atomic<bool> layer_watches{false};

// A report symbolises: it needs some hundred KiB of stack.
bool on_small_signal_stack() {
  constexpr std::size_t kEnough = std::size_t{512} * 1024;
  stack_t stack;
  return system_call(SYS_sigaltstack, 0, reinterpret_cast<std::uintptr_t>(&stack)) == 0 &&
         (stack.ss_flags & SS_ONSTACK) && stack.ss_size < kEnough;
}

// Files are opened and read at the end, which is where a thread would be cancelled that is asked to end.
class Uncancelled {
 public:
  Uncancelled() : set_(reinterpret_cast<SetState>(next_definition("pthread_setcancelstate"))) {
    if (set_) set_(PTHREAD_CANCEL_DISABLE, &before_);
  }
  ~Uncancelled() {
    if (set_) set_(before_, nullptr);
  }
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;

 private:
  using SetState = int (*)(int, int*);
  const SetState set_;
  int before_ = 0;
};

// Stacks may be of any size: other threads' than the first's, and those that a program makes for its coroutines.
template <class Work>
void with_large_stack(Work work) {
  constexpr std::size_t kBytes = std::size_t{2} << 20;
  void* const stack =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED) return work();
  note_own_stack(stack, kBytes);
  call_on_stack(
      static_cast<char*>(stack) + kBytes - kZerosAboveOwnStack, [](void* asked) { (*static_cast<Work*>(asked))(); },
      &work);
  note_own_stack(nullptr, 0);
  munmap(stack, kBytes);
}

// Asked first: a process that has nothing to say makes no system call at its end, which a filter might not allow.
bool has_something_to_say() {
  if (switched_off() || !will_report()) return false;
  const bool filtered = system_calls_are_filtered();
  if (gpu_used()) return options().report_requested || !filtered;
  return (options().report_requested || options().gate_judges_host()) && !filtered && !launches_ranks();
}

bool others_failed() { return is_head_of_family && verdicts_of_others().worst() != Outcome::passed; }

void complain_in_silence() {
  if (complains_in_silence() && !system_calls_are_filtered() && may_report_here()) say_deferred_lines();
}

// What each thread that ends the process ends it with: which of them comes to the end nobody knows before.
struct ExitStatus {
  std::atomic<const void*> thread{nullptr};
  std::atomic<int> status{0};
  std::atomic<std::uint64_t> held_up_since_ns{0};  // by us; 0: it is not
};
constinit ExitStatus exit_statuses[8];
// When memory was judged for the thread that ends the process, which stood still then.
constinit std::atomic<std::uint64_t> judged_from_ns{0}, judged_until_ns{0};

// Null: of more threads than there is room for.
ExitStatus* exit_status_of_this_thread() {
  const void* const self = __builtin_thread_pointer();
  for (ExitStatus& of : exit_statuses) {
    const void* thread = nullptr;
    if (of.thread.compare_exchange_strong(thread, self) || thread == self) return &of;
  }
  return nullptr;
}

void note_exit_status(int status, void*) {
  if (ExitStatus* const of = exit_status_of_this_thread()) of->status.store(status, std::memory_order_relaxed);
}

// Nothing: nobody knows it.
std::optional<int> exit_status() {
  for (const ExitStatus& of : exit_statuses)
    if (of.thread.load() == __builtin_thread_pointer()) return of.status.load(std::memory_order_relaxed);
  return {};
}

bool is_failure(int status) { return (status & 0xff) != 0; }

// Whether a thread that was held up would have ended the process before this one without us: the others' time went on
// while memory was judged for this one.
bool would_have_come_first(const ExitStatus& of) {
  const std::uint64_t since_ns = of.held_up_since_ns.load();
  return since_ns && since_ns - judged_from_ns.load() < coarse_now_ns() - judged_until_ns.load();
}

// A gate turns no failure of another thread into the success of this one.
std::optional<int> exit_status_of_process() {
  const std::optional<int> own = exit_status();
  if (!own || is_failure(*own)) return own;
  for (const ExitStatus& of : exit_statuses)
    if (would_have_come_first(of) && is_failure(of.status.load())) return of.status.load();
  return own;
}

class HeldUp {
 public:
  HeldUp() : status_(exit_status_of_this_thread()) { note(coarse_now_ns()); }
  ~HeldUp() { note(0); }
  HeldUp(const HeldUp&) = delete;
  HeldUp& operator=(const HeldUp&) = delete;

 private:
  void note(std::uint64_t since_ns) {
    if (status_) status_->held_up_since_ns = since_ns;
  }
  ExitStatus* const status_;
};

// In a forked child the threads that were held up are gone.
void nobody_is_held_up() {
  for (ExitStatus& of : exit_statuses) set_in_child(of.held_up_since_ns, 0u);
}

// A child that was forked when our handlers were gone already has nobody to wait for. (Asked last: a filter may not
// allow the question.)
// `status`: of an end that was not noted, as a child of vfork would note its own for its parent.
void let_others_go_first(std::optional<int> status = {}) {
  wait_for_end_by_signal();
  if (!another_thread_ends() || !in_own_process()) return;
  if (status) note_exit_status(*status, nullptr);
  const HeldUp held_up;
  let_others_end();
}

// The thread that the C library's last handler, which is ours, was called in. Any other thread's exit would find the
// list empty then, and end the process at once, without the report: our exit waits, and for who ends the process in the
// C library's own way (errx) a handler is left in the list that does.
constinit std::atomic<const void*> last_handler_thread{nullptr};

void let_last_handler_end() {
  const void* const thread = last_handler_thread.load();
  if (!thread || thread == __builtin_thread_pointer() || !has_something_to_say() || !in_own_process()) return;
  const HeldUp held_up;
  give_way();
}

void begin_last_handler() {
  last_handler_thread = __builtin_thread_pointer();
  if (has_something_to_say()) on_exit([](int, void*) { let_last_handler_end(); }, nullptr);
}

// Before the C library's list of quick_exit is one handler shorter for this thread: who finds it empty ends the
// process.
void begin_quick_exit() {
  let_others_go_first();
  if (has_something_to_say() && may_report_here()) const Ending ending;
}

// Other threads may end the process in the C library's own way (errx), without our exit, while memory is judged here.
// They find this handler first, and wait in it. Without it two threads would run the list of handlers, and one may free
// memory of the list that the other uses.
void hold_others_in_the_list() {
  static constinit std::atomic<bool> holds{false};
  if (__libc_single_threaded || holds.exchange(true)) return;
  on_exit([](int status, void*) { let_others_go_first(status); }, nullptr);
}

// Silent processes are left without a new descriptor. Live memory is judged before any destructor runs.
void begin_exit(const void* stack) {
  let_others_go_first();
  maintenance::end();
  complain_in_silence();
  if ((others_failed() || is_recorded()) && !system_calls_are_filtered() && may_report_here()) hold_standard_error();
  if (!has_something_to_say()) return gpu_used() ? exit_begins() : void();
  if (!may_report_here()) return;
  const Uncancelled uncancelled;
  const Ending ending;
  hold_others_in_the_list();
  judged_from_ns = coarse_now_ns();
  hold_standard_error();
  hold_report_descriptor();
  note_what_was_launched();
  if (will_report()) let_kinds_look_back();
  exit_begins();
  if (will_report()) with_large_stack([stack] { judge_at_end(stack); });
  judged_until_ns = coarse_now_ns();
}

// `status`: what the process ends with, where that can be changed. Returns what it is to end with.
int end_process(const char* moment, std::optional<int> status) {
  if (switched_off()) return status.value_or(0);
  live::end();
  if (is_recorded() && may_report_here()) {
    const Uncancelled uncancelled;
    with_large_stack(end_recording);
  }
  if (!has_something_to_say()) {
    if (system_calls_are_filtered()) return keep_gate_unseen(status);
    if (!others_failed()) return status.value_or(0);
    if (!may_report_here()) return in_own_process() ? keep_gate_unseen(status) : status.value_or(0);
    const Uncancelled uncancelled;
    return code_beside_other_ranks(status.value_or(0), keep_gate_of_others(status));
  }
  if (!may_report_here()) return in_own_process() ? keep_gate_unseen(status) : status.value_or(0);
  const Uncancelled uncancelled;
  const Ending ending;
  note_what_was_launched();
  const void* const stack = stack_in_use();
  int ends_with = 0;
  with_large_stack([&] { ends_with = process_ended({moment, status, stack}); });
  let_other_ranks_report();
  return ends_with;
}

// --- Fork. The C library calls handlers before a fork in the reverse of the order in which they were registered, and
// after it in that order: ours, registered before all others, hold our locks for no handler of anybody else's. They are
// registered for no object: the C library would take them out when exit comes to our destructors, perhaps between two
// parts of another thread's fork.
void in_forked_child() {
  process_id.store(system_calls_are_filtered() ? kUnknown : getpid(), std::memory_order_relaxed);
  set_in_child(last_handler_thread, nullptr);
  nobody_is_held_up();
  note_forked();
  family_after_fork_in_child();
  after_fork_in_child();
  requests_after_fork_in_child();
  watch_signals_in_child();
  live::after_fork_in_child();
  maintenance::note_start();
}

RegisterAtfork real_register_atfork() { return reinterpret_cast<RegisterAtfork>(next_symbol("__register_atfork")); }

void register_fork_handlers() {
  static constinit std::atomic<bool> registered{false};
  if (!registered.exchange(true)) real_register_atfork()(before_fork, after_fork_in_parent, in_forked_child, nullptr);
}

// The C library writes what stdio holds after our turn: where the code changes, the C library's own exit does that in
// our turn, and what other handlers there are it calls as well.
void end_process_by(const char* exit_function, const char* moment) {
  const std::optional<int> status = exit_status();
  const int changed = end_process(moment, exit_status_of_process());
  if (status && changed != *status) reinterpret_cast<Exit>(next_definition(exit_function))(changed);
}

// errx and the like end the process without our exit.
void watch_exit_status() {
  using OnExit = int (*)(void (*)(int, void*), void*);
  if (!options().has_gate()) return;
  if (const auto on_exit = reinterpret_cast<OnExit>(next_definition("on_exit"))) on_exit(note_exit_status, nullptr);
}

// As a layer: handlers that are registered behind this one are done, those before it come next.
void begin_exit_from_layer(int status, void*) {
  note_exit_status(status, nullptr);
  begin_exit(stack_in_use());
}

// As a layer: other libraries' destructors still come after ours, then what was registered meanwhile, which is this,
// and then what stdio holds is written. `status`: a handler may have called exit again, with another.
void end_process_from_layer(int status, void*) {
  note_exit_status(status, nullptr);
  end_process_by("exit", "exit");
}

// As a layer nobody may have seen the status.
void call_at_quick_exit(void*) { end_process_by("_exit", "_exit"); }

void on_gpu_state() {
  if (preloaded.load(std::memory_order_relaxed) && options().report != "none") watch_ends_by_signal();
  live::note_gpu_used();
  maintenance::note_start();
}

// At the first chance: our constructor, or the start of main. Options are read here because programs change their
// environment later.
void start_process() {
  pid_t none = 0;
  if (!process_id.compare_exchange_strong(none, getpid()) || switched_off()) return;
  start_clock();
  note_standard_error();
  note_start_directory(environment_variable);
  note_who_started(environment_variable);
  options();
  options_are_in_use();
  if (has_deferred_lines() && options().report != "none") note_complaints();
  if (options().system_calls == "few") note_system_filter();
  if (options().has_gate() && options().fail_children && !system_calls_are_filtered()) join_family(options());
  if (options().has_gate() && !system_calls_are_filtered()) note_suppressions();
  if (options().wake != "off") put_sites_to_sleep();
  host::prepare_pool();
  host::prepare_placement();
  host::prepare_operators();
  register_fork_handlers();
  __cxa_at_quick_exit(call_at_quick_exit, __dso_handle);
  if (options().report_requested) note_report_destination();
  note_recording();
  gpu_state_hook.store(on_gpu_state, std::memory_order_relaxed);
}

int wrapped_main(int argc, char** argv, char** environment) {
  watch_exit_status();
  const int status = program_main(argc, argv, environment);
  note_exit_status(status, nullptr);
  begin_exit(stack_in_use());
  let_last_handler_end();
  return status;
}

void wrapped_fini() {
  begin_last_handler();
  if (loader_fini) loader_fini();
  let_others_go_first();
  end_process_by("exit", "exit");
}

[[gnu::constructor]] void constructed() { start_process(); }

[[gnu::destructor]] void destructed() {
  if (preloaded.load(std::memory_order_relaxed)) return;
  if (layer_watches.load(std::memory_order_relaxed) && on_exit(end_process_from_layer, nullptr) == 0) return;
  begin_exit(stack_in_use());
  end_process("exit", {});
}

// Somebody behind us may end the process in his own way: a sanitizer has a status for what it found.
[[noreturn]] void end_at_once(const char* name, int status) {
  let_others_go_first(status);
  complain_in_silence();
  status = end_process("_exit", status);
  if (const auto next = reinterpret_cast<Exit>(next_definition(name))) next(status);
  while (true) system_call(SYS_exit_group, static_cast<std::uintptr_t>(status));
}

}  // namespace

bool in_own_process() { return this_process() == process_id.load(std::memory_order_relaxed); }

bool in_child_unprepared() {
  const pid_t own = process_id.load(std::memory_order_relaxed);
  return own > 0 && !system_calls_are_filtered() && this_process() != own;
}

bool may_report_on_a_large_stack() {
  return in_own_process() && locks_held == 0 && !judgement_is_held_here() && !host::inside_allocator();
}

bool may_report_here() { return may_report_on_a_large_stack() && !on_small_signal_stack(); }

void watch_exit_from_layer() {
  if (preloaded.load(std::memory_order_relaxed) || switched_off() || layer_watches.exchange(true)) return;
  watch_requests();
  on_exit(begin_exit_from_layer, nullptr);
  if (options().has_gate()) watch_sudden_ends_from_layer();
}

}  // namespace cistern

using namespace cistern;

extern "C" {

[[gnu::visibility("default")]] int __libc_start_main(Main main, int argc, char** argv, Action init, Action fini,
                                                     Action rtld_fini, void* stack_end) {
  preloaded.store(true, std::memory_order_relaxed);
  start_process();
  program_main = main;
  loader_fini = rtld_fini;
  const auto real = reinterpret_cast<StartMain>(next_symbol("__libc_start_main"));
  if (switched_off()) return real(main, argc, argv, init, fini, rtld_fini, stack_end);
  watch_requests();
  if (options().writes_asked_for_report()) watch_ends_by_signal();
  live::note_start();
  maintenance::note_start();
  real_exit.store(reinterpret_cast<Exit>(next_symbol("exit")), std::memory_order_relaxed);
  outermost_function = reinterpret_cast<const void*>(wrapped_main);
  return real(wrapped_main, argc, argv, init, fini, wrapped_fini, stack_end);
}

[[gnu::visibility("default")]] int __register_atfork(Action prepare, Action parent, Action child,
                                                     void* object) noexcept {
  if (!switched_off()) register_fork_handlers();
  return real_register_atfork()(prepare, parent, child, object);
}

// Another library's constructor may exit before main.
[[gnu::visibility("default"), gnu::noreturn]] void exit(int status) {
  note_exit_status(status, nullptr);
  begin_exit(stack_in_use());
  let_last_handler_end();
  Exit real = real_exit.load(std::memory_order_relaxed);
  if (!real) real = reinterpret_cast<Exit>(next_symbol("exit"));
  real(status);
  __builtin_unreachable();
}

[[gnu::visibility("default"), gnu::noreturn]] void quick_exit(int status) noexcept {
  note_exit_status(status, nullptr);
  begin_quick_exit();
  reinterpret_cast<Exit>(next_definition("quick_exit"))(status);
  __builtin_unreachable();
}

[[gnu::visibility("default"), gnu::noreturn]] void _exit(int status) { end_at_once("_exit", status); }
[[gnu::visibility("default"), gnu::noreturn]] void _Exit(int status) { end_at_once("_Exit", status); }
}
