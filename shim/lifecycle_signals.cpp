// See lifecycle_signals.hpp. The report is written by the thread that the signal came to, on a stack of its own. A
// thread that waits for signals would need no such care, but the program would see it: Python warns when it forks
// beside threads, and a process of two threads may not enter a new user namespace.
//
// Where the signal interrupted this thread in malloc, under one of our locks or in the dynamic linker, the handler
// returns, and the kernel's timer sends the signal once more: by then the thread has left, or another one is asked. The
// same timer ends a process whose report hangs. What a thread sends to itself it has to die of at once, with a report
// or without: it would go on. So it has where it ends the process meanwhile, or changes what the signal does.
#include "shim/lifecycle_signals.hpp"

#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <iterator>

#include "pool/base/system_call.hpp"
#include "shim/core/core.hpp"
#include "shim/core/judging.hpp"
#include "shim/lifecycle.hpp"
#include "shim/lifecycle_requests.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/process.hpp"
#include "shim/process/standard_error.hpp"
#include "shim/process/system_filter.hpp"
#include "stats/counters.hpp"

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
// The last one only asks for a report, where an option names it; 0: none.
constinit Watched watched[] = {
    {SIGHUP, "SIGHUP", {}}, {SIGINT, "SIGINT", {}}, {SIGTERM, "SIGTERM", {}}, {0, "a request", {}}};
constinit int& request_signal = watched[3].number;

constexpr std::uint64_t kPatienceNs = 2'000'000'000;
// Less than the second after which Open MPI kills those that are left.
constexpr std::uint64_t kLetOthersReportNs = 950'000'000;
constexpr std::uint64_t kGiveUpNs = 100'000'000;  // where nobody has begun to report
constexpr long kTickNs = 5'000'000;
constexpr std::size_t kStackBytes = std::size_t{2} << 20;

constinit SignalAction real_sigaction = nullptr;    // null: signals are not watched
constinit std::atomic<std::uint64_t> die_at_ns{0};  // 0: no signal has come
constinit std::atomic<int> death_signal{0};

Watched* watched_signal(int number) {
  for (Watched& signal : watched)
    if (number && signal.number == number && real_sigaction) return &signal;
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
bool start_ticking(int number) {
  if (system_calls_are_filtered()) return false;
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = number;
  int timer = 0;
  const itimerspec ticks{{0, kTickNs}, {0, kTickNs}};
  return system_call(SYS_timer_create, CLOCK_MONOTONIC, word(&event), word(&timer)) == 0 &&
         system_call(SYS_timer_settime, word(timer), 0, word(&ticks), 0) == 0;
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

constinit std::atomic<const Watched*> reported_signal{nullptr};
constinit std::atomic<const void*> interrupted_stack{nullptr};

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
  system_call(SYS_rt_sigprocmask, SIG_UNBLOCK, word(&set), 0, sizeof set);
}

[[noreturn]] void report_and_die() {
  const Watched& signal = *reported_signal.load();
  let_watched_signals_in();
  hold_standard_error();
  beside_other_ranks = dies_with_other_ranks(environment_variable);
  process_ended({signal.name, {}, interrupted_stack.load()});
  while (phase() != Phase::written && coarse_now_ns() < die_at_ns.load()) sleep_a_tick();  // by another thread
  while (lets_others_report(coarse_now_ns())) sleep_a_tick();
  die_of(signal.number);
}

// The program's may be small, or one that it set aside for handlers.
// What the program had in registers lies in `context`, at the end of what it uses of its stack.
[[noreturn]] void report_on_own_stack(const Watched& signal, const void* context) {
  reported_signal = &signal;
  interrupted_stack = context;
  void* const stack =
      mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED && may_report_here()) report_and_die();
  if (stack == MAP_FAILED) die_of(signal.number);
  note_own_stack(stack, kStackBytes);
  char* const top = static_cast<char*>(stack) + kStackBytes - kZerosAboveOwnStack;
#if defined(__x86_64__)
  asm volatile("movq %0, %%rsp\n\txorl %%ebp, %%ebp\n\tcall *%1" : : "r"(top), "r"(report_and_die) : "memory");
#elif defined(__aarch64__)
  asm volatile("mov sp, %0\n\tmov x29, xzr\n\tblr %1" : : "r"(top), "r"(report_and_die) : "memory", "x30");
#else
#error "stacks are changed on x86-64 and aarch64"
#endif
  __builtin_unreachable();
}

// By default the first process of a namespace gets no signals. It may have become that by a fork that we did not see.
bool is_first_process(int number) {
  if (this_process() != 1) return false;
  exchange_entry(number, &watched_signal(number)->entry, nullptr);
  return true;
}

void on_signal(int number, siginfo_t* info, void* context) {
  const int error = errno;
  if (number == request_signal) return request_report();
  if (is_first_process(number)) return;
  if (!in_own_process()) die_of(number);
  const std::uint64_t now = coarse_now_ns();
  std::uint64_t die_at = 0;
  bool can_wait = true;
  if (die_at_ns.compare_exchange_strong(die_at, now + kPatienceNs)) {
    death_signal.store(number);
    const bool sent_by_itself = info->si_code == SI_TKILL && info->si_pid == this_process();
    can_wait = !sent_by_itself && start_ticking(number);
    die_at = now + kPatienceNs;
  }
  if (now >= die_at || (phase() == Phase::written && !lets_others_report(now))) die_of(number);
  // A report that has begun may be this thread's, below this handler; and so may one that has ended.
  if (phase() < Phase::reported) {
    if (may_report_on_a_large_stack() && !interrupted_the_linker(context))
      report_on_own_stack(*watched_signal(number), context);
    if (!can_wait) die_of(number);
  }
  errno = error;
}

void watch(Watched& signal) {
  KernelEntry of_program;
  if (!signal.number || !exchange_entry(signal.number, nullptr, &of_program) || of_program.handler != SIG_DFL) return;
  signal.entry = of_program;
  struct sigaction entry;
  entry.sa_sigaction = on_signal;
  entry.sa_flags = SA_SIGINFO | SA_RESTART;
  sigfillset(&entry.sa_mask);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&entry.sa_mask, fault);
  real_sigaction(signal.number, &entry, nullptr);
}

bool is_ours(const void* handler) { return handler == reinterpret_cast<const void*>(on_signal); }

}  // namespace

// The first process of a container gets no signal that it has no handler for.
void watch_signals() {
  if (this_process() == 1) return;
  const String& asked = options().report_signal;
  const int request = asked == "USR1" ? SIGUSR1 : asked == "USR2" ? SIGUSR2 : asked == "QUIT" ? SIGQUIT : 0;
  if (request && await_requests()) request_signal = request;
  real_sigaction = reinterpret_cast<SignalAction>(next_definition("sigaction"));
  if (!real_sigaction) return;
  for (Watched& signal : watched) watch(signal);
}

void watch_signals_in_child() {
  die_at_ns.store(0, std::memory_order_relaxed);
  if (request_signal) await_requests();
}

void leave_signals() {
  if (request_signal) dismiss_requests();
  for (Watched& signal : watched) {
    KernelEntry entry;
    if (signal.number && real_sigaction && exchange_entry(signal.number, nullptr, &entry) &&
        is_ours(reinterpret_cast<const void*>(entry.handler)))
      exchange_entry(signal.number, &signal.entry, nullptr);
  }
}

void watch_signals_again() {
  if (request_signal) await_requests();
  for (Watched& signal : watched)
    if (real_sigaction) watch(signal);
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
