// See other_threads.hpp. The helper is a process of its own that shares this one's memory and files, as
// LeakSanitizer's is: a thread may not trace its own process. It makes no call of the C library. When it ends, for
// whatever reason, the kernel lets all go that it stopped.
#include "shim/judged_copy/other_threads.hpp"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>
#include <iterator>
#include <new>

#include "pool/base/clock.hpp"
#include "pool/base/folder.hpp"
#include "pool/base/private_descriptor.hpp"
#include "pool/base/system_call.hpp"
#include "shim/judged_copy/waiting_call.hpp"
#include "shim/process/small_file.hpp"

namespace cistern {
namespace {

constexpr std::uint64_t kMillisecond = 1'000'000;
// Threads that are stopped wait for the slowest one.
constexpr std::uint64_t kStopNs = 200 * kMillisecond, kPatienceNs = 1000 * kMillisecond;
// The copy may hang on one that is stopped (userfaultfd tells a thread of forks), so nobody is stopped for longer.
constexpr std::uint64_t kLongestNs = 3000 * kMillisecond;
// No more are asked than will stop in time: who stops later has to be met.
constexpr std::size_t kAskedAtOnce = 64;
constexpr std::size_t kPlacesForThread = 2;
constexpr std::size_t kStackBytes = std::size_t{64} * 1024, kTextMax = 256;

std::uintptr_t word(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }
std::uintptr_t word(long number) { return static_cast<std::uintptr_t>(number); }

void sleep_for(long nanoseconds) {
  const timespec time{0, nanoseconds};
  system_call(SYS_nanosleep, word(&time), 0);
}

// "ID/syscall" and its like, below the folder of this process's threads.
template <std::size_t size>
std::string_view read_of_thread(int folder, int id, std::string_view file, char (&text)[size], long* error = nullptr) {
  char path[32];
  char* end = std::to_chars(path, path + 12, id).ptr;
  end += file.copy(end, 16);
  *end = '\0';
  const long opened = system_call(SYS_openat, word(folder), word(path), O_RDONLY | O_CLOEXEC);
  if (error) *error = opened;
  if (opened < 0) return {};
  const long bytes = system_call(SYS_read, word(opened), word(text), size);
  system_call(SYS_close, word(opened));
  if (error) *error = bytes;
  return {text, static_cast<std::size_t>(std::max(bytes, 0L))};
}

WaitingCall call_of(int folder, int id) {
  char text[kTextMax];
  return parse_waiting_call(read_of_thread(folder, id, "/syscall", text));
}

// Arguments are registers too. The number tells the call from another one.
void note_call(OtherThread& thread, const WaitingCall& call) {
  thread.stack = call.stack;
  thread.word_count = call.stack ? std::size(call.arguments) : 0;
  std::copy(std::begin(call.arguments), std::end(call.arguments), thread.words);
  thread.words[thread.word_count] = word(call.number);
}

bool is_where_it_was(const OtherThread& thread, const WaitingCall& call) {
  return call.stack && call.number != WaitingCall::kRuns && thread.stack == call.stack && thread.word_count &&
         thread.words[thread.word_count] == word(call.number) &&
         std::equal(std::begin(call.arguments), std::end(call.arguments), thread.words);
}

// The first thread may have ended before the others: so it stays on the list.
bool has_ended(int folder, int id) {
  char text[kTextMax];
  long error = 0;
  const std::string_view status = read_of_thread(folder, id, "/stat", text, &error);
  const std::size_t name_end = status.rfind(") ");
  if (name_end == status.npos) return error == -ENOENT || error == -ESRCH;
  return name_end + 2 < status.size() && strchr("ZX", status[name_end + 2]);
}

// In the thread's own namespace, whose numbers /proc may not have: the last of "NSpid:  4711  12".
bool is_numbered_here(int folder, int id, int number) {
  char text[4096];
  std::string_view status = read_of_thread(folder, id, "/status", text);
  const std::size_t at = status.find("\nNSpid:");
  if (at == status.npos) return false;
  status = status.substr(at + 1, status.find('\n', at + 1) - at - 1);
  status = status.substr(status.find_last_of(" \t") + 1);
  int last = 0;
  std::from_chars(status.data(), status.data() + status.size(), last);
  return last == number;
}

std::uint64_t mask_in(std::string_view status, std::string_view name) {
  const std::size_t at = status.find(name);
  std::uint64_t mask = 0;
  if (at != status.npos) {
    const char* const digits = status.data() + at + name.size();
    std::from_chars(digits, status.data() + status.size(), mask, 16);
  }
  return mask;
}

// A handler of the program's is about to run: then EINTR is what the program is to see.
bool has_handler_ahead(int folder, int id, int signal) {
  char text[4096];
  const std::string_view status = read_of_thread(folder, id, "/status", text);
  std::uint64_t signals =
      (mask_in(status, "\nSigPnd:\t") | mask_in(status, "\nShdPnd:\t")) & ~mask_in(status, "\nSigBlk:\t");
  if (signal) signals |= std::uint64_t{1} << (signal - 1);
  return signals & mask_in(status, "\nSigCgt:\t");
}

long trace(long request, int id, std::uintptr_t address = 0, std::uintptr_t data = 0) {
  return system_call(SYS_ptrace, word(request), word(id), address, data);
}

long get_registers(int id, unsigned set, void* to, std::size_t bytes) {
  iovec part{to, bytes};
  return trace(PTRACE_GETREGSET, id, set, word(&part)) < 0 ? 0 : static_cast<long>(part.iov_len);
}

// Of x86-64: the call is made once more, as it was.
void begin_again([[maybe_unused]] OtherThread& thread, [[maybe_unused]] int folder) {
#if defined(__x86_64__)
  user_regs_struct general;
  memcpy(&general, thread.words, sizeof general);
  constexpr int kCallBytes = 2;
  if (!may_begin_again(static_cast<long>(general.orig_rax)) || static_cast<long>(general.rax) != -EINTR) return;
  if (has_handler_ahead(folder, thread.id, thread.signal)) return;
  general.rax = general.orig_rax;
  general.rip -= kCallBytes;
  iovec part{&general, sizeof general};
  trace(PTRACE_SETREGSET, thread.id, NT_PRSTATUS, word(&part));
#endif
}

// Whether all are known.
bool read_registers(OtherThread& thread) {
#if defined(__x86_64__)
  user_regs_struct general{};
  const long bytes = get_registers(thread.id, NT_PRSTATUS, &general, sizeof general);
  thread.stack = general.rsp;
  thread.thread_pointer = general.fs_base;
  constexpr unsigned kVectors = NT_X86_XSTATE;
#elif defined(__aarch64__)
  user_regs_struct general{};
  const long bytes = get_registers(thread.id, NT_PRSTATUS, &general, sizeof general);
  thread.stack = general.sp;
  get_registers(thread.id, NT_ARM_TLS, &thread.thread_pointer, sizeof thread.thread_pointer);
  constexpr unsigned kVectors = NT_PRFPREG;
#endif
  if (bytes != static_cast<long>(sizeof general)) return false;
  memcpy(thread.words, &general, sizeof general);
  char* const vectors = reinterpret_cast<char*>(thread.words) + sizeof general;
  const long more = get_registers(thread.id, kVectors, vectors, sizeof thread.words - sizeof general);
  if (more <= 0) return false;
  thread.word_count = (sizeof general + static_cast<std::size_t>(more)) / sizeof thread.words[0];
  return true;
}

// `work` runs on the other stack, in the new process only.
long clone_onto(std::uintptr_t flags, char* top, void (*work)(void*), void* argument) {
  long answer;
#if defined(__x86_64__)
  register std::uintptr_t r10 asm("r10") = 0;
  register void (*function)(void*) asm("r12") = work;
  register void* with asm("r13") = argument;
  asm volatile(
      "syscall\n\ttestq %%rax, %%rax\n\tjnz 1f\n\txorl %%ebp, %%ebp\n\tmovq %%r13, %%rdi\n\tcall *%%r12\n\t"
      "xorl %%edi, %%edi\n\tmovl %[exit], %%eax\n\tsyscall\n1:"
      : "=a"(answer)
      : "a"(SYS_clone), "D"(flags), "S"(top), "d"(0), "r"(r10), "r"(function), "r"(with), [exit] "i"(SYS_exit_group)
      : "rcx", "r11", "memory");
#elif defined(__aarch64__)
  register long x8 asm("x8") = SYS_clone;
  register std::uintptr_t x0 asm("x0") = flags;
  register char* x1 asm("x1") = top;
  register std::uintptr_t x2 asm("x2") = 0;
  register std::uintptr_t x3 asm("x3") = 0;
  register std::uintptr_t x4 asm("x4") = 0;
  register void (*function)(void*) asm("x19") = work;
  register void* with asm("x20") = argument;
  asm volatile(
      "svc #0\n\tcbnz x0, 1f\n\tmov x29, xzr\n\tmov x0, x20\n\tblr x19\n\tmov x0, xzr\n\tmov x8, %[exit]\n\tsvc #0\n1:"
      : "+r"(x0)
      : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(function), "r"(with), [exit] "i"(SYS_exit_group)
      : "memory");
  answer = static_cast<long>(x0);
#endif
  return answer;
}

constinit std::atomic<std::uintptr_t> permitted_tracer{0};

// Yama's mode in which a process is traced by its ancestors and by whom it names.
bool tracer_has_to_be_named() {
  const SmallFile<16> scope("/proc/sys/kernel/yama/ptrace_scope");
  return scope.number().value_or(0) == 1;
}

// A filter that ends a process for ptrace would end this one too, where memory is shared: before Linux 5.16 a core dump
// takes all along that share it.
bool may_share_memory() {
  const SmallFile<4096> status("/proc/self/status");
  return status.number_after("\nSeccomp:").value_or(0) == 0;
}

}  // namespace

void note_permitted_tracer(std::uintptr_t process) { permitted_tracer.store(process, std::memory_order_relaxed); }

// In memory of both, and of the copy.
struct OtherThreads::Table {
  enum Step : std::uint32_t { kMade, kMayBegin, kStopped, kMayEnd };

  std::atomic<std::uint32_t> step{kMade};
  int folder = -1;  // of this process's threads
  int own_id = 0, own_thread = 0;
  long process = 0;
  std::uint64_t began_ns = 0, ended_ns = 0;
  std::size_t room = 0, count = 0;
  unsigned left_out = 0;
  bool are_numbered = false;
  std::atomic<bool> looked_again{false}, gave_up{false};
  std::size_t asked = 0;

  std::span<OtherThread> all() { return {threads, count}; }
  std::size_t place_count = 0;
  std::uint32_t* places();
  OtherThread* find(int id);
  void note_place(std::size_t at);
  void drop_ended();
  void add(int id);
  void list();

  void tell(Step next) {
    step.store(next, std::memory_order_release);
    system_call(SYS_futex, word(&step), FUTEX_WAKE, 1);
  }
  void wait_a_little(std::uint32_t seen) {
    constexpr timespec kTick{0, 5'000'000};
    system_call(SYS_futex, word(&step), FUTEX_WAIT, seen, word(&kTick));
  }

  // In the helper.
  static void run(void* table) { static_cast<Table*>(table)->stop_all(); }
  void stop_all();
  // False: not within so long.
  bool await(Step wanted, std::uint64_t most_ns);
  bool ask_to_stop(OtherThread& thread);
  // Until no more than `left` are asked.
  void await_stops(std::size_t left, std::uint64_t until_ns);
  void note_stop(OtherThread& thread, int status);

  OtherThread threads[];
};

// Behind the threads lie their places by their numbers.
std::uint32_t* OtherThreads::Table::places() { return reinterpret_cast<std::uint32_t*>(threads + room); }

OtherThread* OtherThreads::Table::find(int id) {
  for (std::size_t i = static_cast<std::size_t>(id) % place_count;; i = (i + 1) % place_count) {
    const std::uint32_t at = places()[i];
    if (!at) return nullptr;
    if (threads[at - 1].number == id) return &threads[at - 1];
  }
}

void OtherThreads::Table::note_place(std::size_t at) {
  std::size_t i = static_cast<std::size_t>(threads[at].number) % place_count;
  while (places()[i]) i = (i + 1) % place_count;
  places()[i] = static_cast<std::uint32_t>(at + 1);
}

// Threads that start others and end come and go while the rest is stopped.
void OtherThreads::Table::drop_ended() {
  std::fill_n(places(), place_count, 0);
  std::size_t kept = 0;
  for (std::size_t at = 0; at < count; ++at) {
    if (!threads[at].id) continue;
    if (kept != at) threads[kept] = threads[at];
    note_place(kept++);
  }
  std::fill(threads + kept, threads + count, OtherThread{});
  count = kept;
}

void OtherThreads::Table::add(int id) {
  if (id == own_thread || id == own_id || find(id)) return;
  if (count == room) drop_ended();
  if (count == room) {
    ++left_out;
    return;
  }
  threads[count].id = threads[count].number = id;
  note_place(count++);
}

// Adds those that are new.
void OtherThreads::Table::list() {
  system_call(SYS_lseek, word(folder), 0, SEEK_SET);
  left_out = 0;
  visit_names(folder, [this](const char* name) {
    int id = 0;
    std::from_chars(name, name + strlen(name), id);
    are_numbered |= id == own_id;
    if (id > 0) add(id);
    return false;
  });
}

// --- The helper

bool OtherThreads::Table::await(Step wanted, std::uint64_t most_ns) {
  const std::uint64_t until_ns = monotonic_ns() + most_ns;
  for (std::uint32_t seen; (seen = step.load(std::memory_order_acquire)) < wanted;) {
    if (monotonic_ns() > until_ns) return false;
    wait_a_little(seen);
  }
  return true;
}

void OtherThreads::Table::stop_all() {
  system_call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
  if (system_call(SYS_getppid) != process) return;
  if (!await(kMayBegin, kLongestNs)) return;
  constexpr int kRounds = 16, kLooksAtBusy = 8;
  began_ns = monotonic_ns();
  const std::uint64_t until_ns = began_ns + kStopNs;
  for (int round = 0; round < kRounds && monotonic_ns() < until_ns; ++round) {
    drop_ended();
    const std::size_t known = count;
    list();
    bool some_are_busy = false;
    for (OtherThread& thread : all()) {
      if (!thread.id || thread.progress != Progress::none || monotonic_ns() > until_ns) continue;
      some_are_busy |= !ask_to_stop(thread);
      if (asked >= kAskedAtOnce) await_stops(kAskedAtOnce / 2, until_ns);
    }
    await_stops(0, until_ns);
    if (count == known && (!some_are_busy || round >= kLooksAtBusy)) break;
    if (some_are_busy) sleep_for(100'000);
  }
  tell(kStopped);
  gave_up.store(!await(kMayEnd, kLongestNs), std::memory_order_release);
  bool any = false;
  for (OtherThread& thread : all()) {
    if (thread.progress != Progress::stopped) continue;
    trace(PTRACE_DETACH, thread.id, 0, word(thread.signal));
    thread.progress = Progress::let_go;
    any = true;
  }
  if (any) ended_ns = monotonic_ns();
  // Whoever was asked in vain stops at last: he is let go as the others.
  await_stops(0, monotonic_ns() + kLongestNs);
  for (const OtherThread& thread : all())
    if (thread.progress == Progress::stopped) trace(PTRACE_DETACH, thread.id, 0, word(thread.signal));
}

// False: it may be asked again, in a moment.
bool OtherThreads::Table::ask_to_stop(OtherThread& thread) {
  const WaitingCall call = call_of(folder, thread.id);
  note_call(thread, call);
  if (call.is_kernels() || (!call.stack && has_ended(folder, thread.id))) {
    thread.id = 0;
    return true;
  }
  if (!answers_as_before(call)) return false;
  const bool is_asked = trace(PTRACE_SEIZE, thread.id) == 0 && trace(PTRACE_INTERRUPT, thread.id) == 0;
  thread.progress = is_asked ? Progress::asked : Progress::refused;
  asked += is_asked;
  return true;
}

void OtherThreads::Table::await_stops(std::size_t left, std::uint64_t until_ns) {
  while (asked > left) {
    int status = 0;
    const long id = system_call(SYS_wait4, word(-1), word(&status), word(__WALL | WNOHANG), 0);
    if (id < 0 || (id == 0 && monotonic_ns() > until_ns)) return;
    if (id == 0) sleep_for(20'000);
    OtherThread* const thread = id ? find(static_cast<int>(id)) : nullptr;
    if (!thread || thread->progress != Progress::asked) continue;
    --asked;
    note_stop(*thread, status);
  }
}

void OtherThreads::Table::note_stop(OtherThread& thread, int status) {
  if (!WIFSTOPPED(status)) {
    thread.id = 0;
    thread.progress = Progress::none;
    return;
  }
  const bool by_helper = status >> 16 != 0;
  thread.progress = Progress::stopped;
  thread.signal = by_helper ? 0 : WSTOPSIG(status);
  const bool are_known = read_registers(thread);
  thread.is_complete = are_known && step.load(std::memory_order_relaxed) < kStopped;  // later there is the copy
  begin_again(thread, folder);
}

// --- The process itself

std::size_t OtherThreads::table_bytes() {
  constexpr std::size_t kMore = 64, kMost = 16384;
  const SmallFile<4096> status("/proc/self/status");
  const std::size_t threads = std::min<std::size_t>(status.number_after("\nThreads:").value_or(1), kMost);
  return sizeof(Table) +
         (threads + threads / 4 + kMore) * (sizeof(OtherThread) + kPlacesForThread * sizeof(std::uint32_t));
}

OtherThreads::OtherThreads(void* table, std::size_t bytes) : table_(*new (table) Table) {
  table_.room = (bytes - sizeof(Table)) / (sizeof(OtherThread) + kPlacesForThread * sizeof(std::uint32_t));
  table_.place_count = table_.room * kPlacesForThread;
}

OtherThreads::~OtherThreads() {
  let_go();
  if (table_.folder >= 0) system_call(SYS_close, word(table_.folder));
}

std::span<OtherThread> OtherThreads::all() const { return table_.all(); }
std::uint64_t OtherThreads::stopped_ns() const { return table_.ended_ns ? table_.ended_ns - table_.began_ns : 0; }
unsigned OtherThreads::left_out() const { return table_.left_out; }

bool OtherThreads::knows(int id) const {
  const OtherThread* const thread = table_.find(id);
  return !table_.are_numbered || table_.left_out || (thread && thread->id);
}

void OtherThreads::look(int own_thread, int tries) {
  table_.own_id = static_cast<int>(system_call(SYS_gettid));
  table_.own_thread = own_thread;
  table_.folder =
      keep_apart(system_call(SYS_openat, word(AT_FDCWD), word("/proc/self/task"), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (table_.folder < 0) return;
  table_.list();
  if (!table_.are_numbered)
    for (OtherThread& thread : all())
      if (is_numbered_here(table_.folder, thread.id, table_.own_id)) thread.id = 0;
  for (OtherThread& thread : all()) {
    if (!thread.id) continue;
    WaitingCall call = call_of(table_.folder, thread.id);
    for (; !call.stack && !call.is_kernels() && tries > 0; --tries) {
      sleep_for(500'000);
      call = call_of(table_.folder, thread.id);
    }
    note_call(thread, call);
    if (call.is_kernels() || (!call.stack && has_ended(table_.folder, thread.id))) thread.id = 0;
  }
}

void OtherThreads::stop() {
  if (table_.folder < 0 || !table_.are_numbered || all().empty()) return;
  void* const stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack == MAP_FAILED) return;
  helper_stack_ = stack;
  names_tracer_ = tracer_has_to_be_named();
  table_.process = system_call(SYS_getpid);
  const std::uintptr_t shared = may_share_memory() ? CLONE_VM : 0;
  helper_ =
      clone_onto(shared | CLONE_FILES | CLONE_UNTRACED, static_cast<char*>(stack) + kStackBytes, Table::run, &table_);
  if (helper_ <= 0) return;
  if (names_tracer_) system_call(SYS_prctl, PR_SET_PTRACER, word(helper_));
  table_.tell(Table::kMayBegin);
  const std::uint64_t until_ns = monotonic_ns() + kPatienceNs;
  for (std::uint32_t seen; (seen = table_.step.load(std::memory_order_acquire)) < Table::kStopped;) {
    table_.wait_a_little(seen);
    if (monotonic_ns() > until_ns || helper_has_ended()) return let_go();
  }
  for (OtherThread& thread : all()) thread.is_complete &= thread.progress == Progress::stopped;
}

void OtherThreads::look_again() {
  for (OtherThread& thread : all())
    if (thread.id && !thread.is_complete) thread.is_steady = is_where_it_was(thread, call_of(table_.folder, thread.id));
  table_.looked_again.store(true, std::memory_order_release);
}

void OtherThreads::await_second_look() const {
  for (int tries = 50'000; tries > 0 && !table_.looked_again.load(std::memory_order_acquire); --tries)
    sleep_for(20'000);
}

bool OtherThreads::helper_has_ended() {
  int status = 0;
  const long answer = system_call(SYS_wait4, word(helper_), word(&status), word(__WALL | WNOHANG), 0);
  if (answer == 0) return false;
  helper_ = 0;
  return true;
}

// Without an answer nothing is known of the others' registers.
void OtherThreads::let_go() {
  const bool in_vain =
      table_.step.load(std::memory_order_acquire) < Table::kStopped || table_.gave_up.load(std::memory_order_acquire);
  table_.tell(Table::kMayEnd);
  const std::uint64_t until_ns = monotonic_ns() + kLongestNs + kPatienceNs;
  bool is_killed = false;
  while (helper_ > 0 && !helper_has_ended()) {
    if ((in_vain || monotonic_ns() > until_ns) && !is_killed)
      is_killed = system_call(SYS_kill, word(helper_), SIGKILL) == 0;
    if (monotonic_ns() > until_ns + kPatienceNs) break;  // it hangs in the kernel
    sleep_for(20'000);
  }
  helper_ = 0;
  if (in_vain)
    for (OtherThread& thread : all()) thread.is_complete = false;
  if (names_tracer_) system_call(SYS_prctl, PR_SET_PTRACER, permitted_tracer.load(std::memory_order_relaxed));
  names_tracer_ = false;
  if (helper_stack_) munmap(helper_stack_, kStackBytes);
  helper_stack_ = nullptr;
}

}  // namespace cistern
