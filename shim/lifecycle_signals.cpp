// See lifecycle_signals.hpp. The report is written by the thread that the signal came to, on a stack of its own. A
// thread that waits for signals would need no such care, but the program would see it: Python warns when it forks
// beside threads, and a process of two threads may not enter a new user namespace.
//
// Where the signal interrupted this thread in malloc, under one of our locks or in the dynamic linker, the handler
// returns, and the kernel's timer sends the signal once more: by then the thread has left, or another one is asked. The
// same timer ends a process whose report hangs. What a thread sends to itself, as abort does, it has to die of at once,
// with a report or without: it would go on. So it has where it ends the process meanwhile, or changes what the signal
// does.
//
// SIGABRT leaves a core dump: the handler returns and the signal comes again, with its default action, so that the dump
// shows the stack that it would show without us.
#include "shim/lifecycle_signals.hpp"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <iterator>

#include "pool/base/process_start.hpp"
#include "pool/base/system_call.hpp"
#include "shim/core/core.hpp"
#include "shim/core/live.hpp"
#include "shim/core/maintenance.hpp"
#include "shim/core/requests.hpp"
#include "shim/judging/judging.hpp"
#include "shim/lifecycle.hpp"
#include "shim/lifecycle_stack.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/kind.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/process.hpp"
#include "shim/process/standard_error.hpp"
#include "shim/process/system_filter.hpp"
#include "stats/counters.hpp"
#include "stats/sites.hpp"

namespace cistern {
namespace {

using SignalAction = int (*)(int, const struct sigaction*, struct sigaction*);

// As the kernel has it: the C library adds to what it writes, which would show.
struct KernelEntry {
  void (*handler)(int);
  unsigned long flags;
  void (*restorer)();
  std::uint64_t mask;
};

struct Watched {
  int number;
  const char* name;
  KernelEntry entry;  // the program's
};
// The last two only ask for something, where an option names them: for a report, and for call sites. 0: none.
constinit Watched watched[] = {{SIGHUP, "SIGHUP", {}},   {SIGINT, "SIGINT", {}}, {SIGTERM, "SIGTERM", {}},
                               {SIGABRT, "SIGABRT", {}}, {0, "a request", {}},   {0, "a wake", {}}};
constinit int& request_signal = watched[4].number;
constinit int& wake_signal = watched[5].number;
bool ends_the_process(const Watched& signal) { return &signal < &watched[4]; }

constexpr std::uint64_t kSecondNs = 1'000'000'000, kPatienceNs = 2 * kSecondNs;
// Less than the second after which Open MPI kills those that are left.
constexpr std::uint64_t kLetOthersReportNs = 950'000'000;
// So long after the first signal another one of the user's is his impatience: programs that end others may send two at
// once.
constexpr std::uint64_t kTwiceNs = 300'000'000;
constexpr std::uint64_t kGiveUpNs = 100'000'000;  // where nobody has begun to report
constexpr long kTickNs = 5'000'000;
constexpr std::size_t kStackBytes = std::size_t{2} << 20;
constexpr std::size_t kOfHandlersBytes = std::size_t{16} << 10;

constinit std::atomic<bool> handlers_have_little_stack{false};
constinit std::atomic<SignalAction> real_sigaction{nullptr};  // null: signals are not watched
constinit std::atomic<bool> ends_are_watched{false};          // not only requests
constinit std::atomic<std::uint64_t> die_at_ns{0};            // 0: no signal has come
constinit std::atomic<int> death_signal{0};

Watched* watched_signal(int number) {
  for (Watched& signal : watched)
    if (number && signal.number == number && real_sigaction.load()) return &signal;
  return nullptr;
}

std::uintptr_t word(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }
std::uintptr_t word(int number) { return static_cast<std::uintptr_t>(number); }

bool exchange_entry(int number, const KernelEntry* entry, KernelEntry* old) {
  return system_call(SYS_rt_sigaction, word(number), word(entry), word(old), sizeof(KernelEntry::mask)) == 0;
}

[[noreturn]] void die_of(int number) {
  const KernelEntry by_default{};
  const std::uint64_t set = std::uint64_t{1} << (number - 1);
  exchange_entry(number, &by_default, nullptr);
  system_call(SYS_rt_sigprocmask, SIG_UNBLOCK, word(&set), 0, sizeof set);
  system_call(SYS_kill, word(this_process()), word(number));
  for (;;) system_call(SYS_exit_group, word(128 + number));
}

void sleep_a_tick() {
  const timespec tick{0, kTickNs};
  system_call(SYS_nanosleep, word(&tick), 0);
}

void send_to_this_thread(int number) {
  system_call(SYS_tgkill, word(this_process()), static_cast<std::uintptr_t>(system_call(SYS_gettid)), word(number));
}

// To any thread that takes it: this one may end, or hang.
constinit int timer = -1;
bool start_ticking(int number, std::uint64_t first_ns) {
  if (system_calls_are_filtered()) return false;
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = number;
  const itimerspec ticks{{0, kTickNs},
                         {static_cast<time_t>(first_ns / kSecondNs), static_cast<long>(first_ns % kSecondNs)}};
  return system_call(SYS_timer_create, CLOCK_MONOTONIC, word(&event), word(&timer)) == 0 &&
         system_call(SYS_timer_settime, word(timer), 0, word(&ticks), 0) == 0;
}

void stop_ticking() {
  if (timer != -1) system_call(SYS_timer_delete, word(timer));
  timer = -1;
}

void change_mask(int how, std::uint64_t set) { system_call(SYS_rt_sigprocmask, word(how), word(&set), 0, sizeof set); }

// When the handler has returned: to what the program let in only while it waited (ppoll, sigsuspend), too.
void die_where_it_came(int number, siginfo_t& info, ucontext_t& context) {
  const KernelEntry by_default{};
  stop_ticking();
  change_mask(SIG_BLOCK, std::uint64_t{1} << (number - 1));
  exchange_entry(number, &by_default, nullptr);
  if (system_call(SYS_rt_tgsigqueueinfo, word(this_process()), static_cast<std::uintptr_t>(system_call(SYS_gettid)),
                  word(number), word(&info)) < 0)
    die_of(number);
  sigdelset(&context.uc_sigmask, number);
}

// Where several came, by the first one.
void end_by(int number, siginfo_t& info, ucontext_t& context) {
  const int first = in_own_process() ? death_signal.load() : 0;
  if (first && first != number) die_of(first);
  if (number != SIGABRT) die_of(number);
  die_where_it_came(number, info, context);
}

// Its list of modules may be in pieces.
bool interrupted_the_linker(const void* context) {
  const mcontext_t& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  const auto at = static_cast<std::uintptr_t>(machine.gregs[REG_RIP]);
#else
  const auto at = static_cast<std::uintptr_t>(machine.pc);
#endif
  return module_of(reinterpret_cast<const void*>(at)) == module_of(reinterpret_cast<const void*>(_r_debug.r_ldbase));
}

// The first rank that dies takes the others along, so none does before all had time for their reports.
constinit std::atomic<bool> beside_other_ranks{false};
bool lets_others_report(std::uint64_t now) {
  return beside_other_ranks.load() && now + kPatienceNs < die_at_ns.load() + kLetOthersReportNs;
}

// The timer's signal is to come through: it finds that there is nothing to do, or that time is up.
void let_watched_signals_in() {
  std::uint64_t set = 0;
  for (const Watched& signal : watched)
    if (signal.number) set |= std::uint64_t{1} << (signal.number - 1);
  change_mask(SIG_UNBLOCK, set);
}

void wait_for_the_report() {  // another thread's
  while (phase() != Phase::written && coarse_now_ns() < die_at_ns.load()) sleep_a_tick();
}

// The other half is for the report, which shows what is live even where there is too much to judge it in time.
void judge_in_half_the_time() {
  static_assert(kPatienceNs == 2 * kSecondNs);
  if (options().judging_limit() > kPatienceNs / 2) set_option("CISTERN_LEAK_CHECK", "1s");
}

struct Interrupted {
  const Watched* signal;
  const void* stack;
};
void report(void* interrupted) {
  const auto [signal, stack] = *static_cast<const Interrupted*>(interrupted);
  live::end();
  let_watched_signals_in();
  hold_standard_error();
  judge_in_half_the_time();
  beside_other_ranks = signal->number != SIGABRT && dies_with_other_ranks(environment_variable);
  process_ended({signal->name, {}, stack});
  wait_for_the_report();
  while (lets_others_report(coarse_now_ns())) sleep_a_tick();
}

// The program's may be small, or one that it set aside for handlers.
// What the program had in registers lies in `context`, at the end of what it uses of its stack.
void report_on_own_stack(const Watched& signal, const void* context) {
  Interrupted interrupted{&signal, context};
  void* const stack =
      mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) {
    if (may_report_here()) report(&interrupted);
    return;
  }
  note_own_stack(stack, kStackBytes);
  call_on_stack(static_cast<char*>(stack) + kStackBytes - kZerosAboveOwnStack, report, &interrupted);
  note_own_stack(nullptr, 0);
  munmap(stack, kStackBytes);
}

// By default the first process of a namespace gets no signals. It may have become that by a fork that we did not see.
bool is_first_process(int number) {
  if (this_process() != 1) return false;
  exchange_entry(number, &watched_signal(number)->entry, nullptr);
  return true;
}

bool is_to_report() { return options().report_requested || gpu_used(); }

// Whether the process is to end by the signal now, with a report or without.
bool is_at_the_end(int number, const siginfo_t& info, const void* context) {
  if (!in_own_process() || !is_to_report()) return true;
  const std::uint64_t now = coarse_now_ns();
  const bool by_itself = info.si_code == SI_TKILL && info.si_pid == this_process();
  std::uint64_t die_at = 0;
  bool can_wait = true;
  if (die_at_ns.compare_exchange_strong(die_at, now + kPatienceNs)) {
    die_at = now + kPatienceNs;
    death_signal.store(number);
    can_wait = start_ticking(number, by_itself ? kPatienceNs : kTickNs) && !by_itself;
  } else if (info.si_code != SI_TIMER && !by_itself && now + kPatienceNs >= die_at + kTwiceNs) {
    return true;
  }
  if (now >= die_at || (phase() == Phase::written && !lets_others_report(now))) return true;
  // A report that has begun may be this thread's, below this handler; and so may one that has ended.
  if (phase() >= Phase::reported) {
    if (by_itself && !judgement_is_held_here()) wait_for_the_report();
    return by_itself;
  }
  const bool can_report = may_report_on_a_large_stack() && !interrupted_the_linker(context);
  if (can_report) report_on_own_stack(*watched_signal(number), context);
  return can_report || !can_wait;
}

void on_signal(int number, siginfo_t* info, void* context) {
  const int error = errno;
  if (number == wake_signal && (wake_sites() || number != request_signal)) return;
  if (number == request_signal) return request_report();
  if (is_first_process(number)) return;
  if (is_at_the_end(number, *info, context)) end_by(number, *info, *static_cast<ucontext_t*>(context));
  errno = error;
}

// What the program sets meanwhile, in another thread, stays.
void watch(Watched& signal) {
  KernelEntry of_program;
  if (ends_the_process(signal) && !ends_are_watched.load()) return;
  if (!signal.number || (signal.number == SIGABRT && handlers_have_little_stack.load())) return;
  if (!exchange_entry(signal.number, nullptr, &of_program) || of_program.handler != SIG_DFL) return;
  signal.entry = of_program;
  struct sigaction entry, found;
  entry.sa_sigaction = on_signal;
  entry.sa_flags = SA_SIGINFO | SA_RESTART;
  sigfillset(&entry.sa_mask);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&entry.sa_mask, fault);
  const SignalAction change = real_sigaction.load();
  if (change(signal.number, &entry, &found) == 0 && found.sa_handler != SIG_DFL) change(signal.number, &found, nullptr);
}

bool is_ours(const void* handler) { return handler == reinterpret_cast<const void*>(on_signal); }

void leave(const Watched& signal) {
  KernelEntry entry;
  if (signal.number && real_sigaction.load() && exchange_entry(signal.number, nullptr, &entry) &&
      is_ours(reinterpret_cast<const void*>(entry.handler)))
    exchange_entry(signal.number, &signal.entry, nullptr);
}

}  // namespace

namespace {
int number_of_signal(const String& name) {
  return name == "USR1" ? SIGUSR1 : name == "USR2" ? SIGUSR2 : name == "QUIT" ? SIGQUIT : 0;
}

void watch_all() {
  const int error = errno;
  if (!real_sigaction.load()) real_sigaction = reinterpret_cast<SignalAction>(next_definition("sigaction"));
  if (real_sigaction.load())
    for (Watched& signal : watched) watch(signal);
  errno = error;
}
}  // namespace

void watch_requests() {
  const int request = options().writes_asked_for_report() ? number_of_signal(options().report_signal) : 0;
  const int wake = number_of_signal(options().wake);
  if ((!request && !wake) || system_calls_are_filtered() || !in_own_process()) return;
  if (request && await_requests()) request_signal = request;
  wake_signal = wake;
  watch_all();
}

// The first process of a container gets no signal that it has no handler for.
void watch_ends_by_signal() {
  if (system_calls_are_filtered() || !in_own_process() || this_process() == 1) return;
  if (!ends_are_watched.exchange(true)) watch_all();
}

void watch_signals_in_child() {
  die_at_ns.store(0, std::memory_order_relaxed);
  death_signal.store(0, std::memory_order_relaxed);
  timer = -1;
  if (request_signal) await_requests();
}

void leave_signals() {
  dismiss_requests();
  live::leave();
  for (Watched& signal : watched) leave(signal);
}

// The kernel lays two frames there. Under a filter SIGABRT is the program's anyway, and no call of ours is made.
void note_stack_for_handlers(std::size_t bytes) {
  if (bytes >= 2 * start_value(AT_MINSIGSTKSZ) + kOfHandlersBytes) return;
  if (system_calls_are_filtered() || !in_own_process()) return;
  if (handlers_have_little_stack.exchange(true)) return;
  if (Watched* const signal = watched_signal(SIGABRT)) leave(*signal);
}

void watch_signals_again() {
  if (request_signal) await_requests();
  live::come_back();
  maintenance::note_start();
  for (Watched& signal : watched)
    if (real_sigaction.load()) watch(signal);
}

namespace {
[[gnu::cold]] void wait_for_the_signal() {
  const int number = death_signal.load();
  if (number) send_to_this_thread(number);  // which may be able to report now
  const std::uint64_t give_up_at = coarse_now_ns() + kGiveUpNs;
  while (phase() == Phase::reported ? coarse_now_ns() < die_at_ns.load() : coarse_now_ns() < give_up_at) sleep_a_tick();
  die_of(number ? number : SIGTERM);
}
}  // namespace

// Comes back only in a process that no signal has come to.
[[gnu::hot]] void wait_for_end_by_signal() {
  if (die_at_ns.load(std::memory_order_relaxed) && in_own_process()) wait_for_the_signal();
}

void let_other_ranks_report() {
  if (!die_at_ns.load(std::memory_order_relaxed) || !dies_with_other_ranks(environment_variable)) return;
  beside_other_ranks = true;
  while (lets_others_report(coarse_now_ns())) sleep_a_tick();
}

EntryOfProgram::EntryOfProgram(int number) : number_(watched_signal(number) ? number : 0) {
  if (!number_) return;
  wait_for_end_by_signal();
  const int error = errno;
  KernelEntry entry;
  if (exchange_entry(number, nullptr, &entry) && is_ours(reinterpret_cast<const void*>(entry.handler)))
    exchange_entry(number, &watched_signal(number)->entry, nullptr);
  errno = error;
}

EntryOfProgram::~EntryOfProgram() { note_entry_of_program(number_); }

void note_entry_of_program(int number) {
  Watched* const signal = watched_signal(number);
  if (!signal || !in_own_process()) return;
  const int error = errno;
  watch(*signal);
  errno = error;
}

void show_entry_of_program(int number, struct sigaction& entry) {
  const Watched* const signal = watched_signal(number);
  if (!signal || !is_ours(reinterpret_cast<const void*>(entry.sa_sigaction))) return;
  entry.sa_handler = signal->entry.handler;
  entry.sa_flags = static_cast<int>(signal->entry.flags);
  entry.sa_restorer = signal->entry.restorer;
  memcpy(&entry.sa_mask, &signal->entry.mask, sizeof signal->entry.mask);
}

}  // namespace cistern
