// See memory_copy.hpp.
#include "shim/judged_copy/memory_copy.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

#include "pool/base/clock.hpp"
#include "pool/base/page_size.hpp"
#include "pool/base/private_descriptor.hpp"
#include "pool/base/system_call.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/headroom.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/small_file.hpp"
#include "shim/process/system_filter.hpp"
#include "stats/counters.hpp"

namespace cistern {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20, kMillisecond = 1'000'000;
constexpr std::size_t kFetchBytes = std::size_t{64} * 1024;  // a pipe holds so much

std::uintptr_t word(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }
std::uintptr_t word(long number) { return static_cast<std::uintptr_t>(number); }

enum State : std::uint32_t { kWorking, kAsking, kAnswered, kDone, kOver };

// What the two processes tell each other.
struct Shared {
  std::atomic<std::uint32_t> state{kWorking};
  std::uintptr_t asked_first;
  std::size_t asked_bytes;
  long answered_bytes;  // negative: none of it can be read
  int opened[4];        // files of both, which the child opened
  unsigned opened_count;
  int pipe[2];  // to read from and to write to; -1: none yet
};

constinit Shared* shared = nullptr;
constinit std::uint64_t deadline_ns = 0;
constinit int pagemap = -1, maps = -1, timers = -1;
constinit char* own_memory = nullptr;
constinit std::size_t own_memory_bytes = 0, own_bytes = 0;  // own_bytes: not taken yet
constinit std::uint64_t unreadable = 0, may_fetch_bytes = 0;

void wait_while(std::uint32_t state, const timespec& at_most) {
  system_call(SYS_futex, word(&shared->state), FUTEX_WAIT, state, word(&at_most));
}
void tell(std::uint32_t state) {
  shared->state.store(state, std::memory_order_release);
  system_call(SYS_futex, word(&shared->state), FUTEX_WAKE, 1);
}

// --- Whether to do it at all

// Measured: 86 ms for 4 GiB in small pages, whose tables are 8 MiB. Memory that is not resident has none.
constexpr std::uint64_t kNanosecondsPerTableMiB = 11 * kMillisecond;
constexpr std::uint64_t kNanosecondsPerMiB = 250'000;
// What the child itself takes.
constexpr std::uint64_t kRoomBytes = 64 * kMiB;

// A filter of system calls that this process set itself, in whatever way. Those that its parent has too, as in a
// container, let programs make processes.
bool has_own_filter(const SmallFile<4096>& status) {
  if (!status.number_after("\nSeccomp:").value_or(0)) return false;
  const std::uint64_t parent = status.number_after("\nPPid:").value_or(0);
  if (!parent) return false;  // the first process of a container
  char digits[24];
  FilePath path("/proc/");
  path.add({digits, static_cast<std::size_t>(std::to_chars(digits, digits + sizeof digits, parent).ptr - digits)});
  path.add("/status");
  const auto filters = [](const SmallFile<4096>& of) { return of.number_after("\nSeccomp_filters:"); };
  const auto own = filters(status), of_parent = filters(SmallFile<4096>(path.text()));
  return !own || !of_parent || *own > *of_parent;
}

// The child would be the first process of another namespace, which ends with it.
bool children_are_elsewhere() {
  const auto link = [](const char* path, char(&text)[64]) {
    const long bytes = system_call(SYS_readlinkat, word(AT_FDCWD), word(path), word(text), sizeof text);
    return bytes > 0 && bytes < static_cast<long>(sizeof text) ? std::string_view(text, static_cast<std::size_t>(bytes))
                                                               : std::string_view();
  };
  char own[64], of_children[64];
  return link("/proc/thread-self/ns/pid", own) != link("/proc/thread-self/ns/pid_for_children", of_children);
}

// Valgrind ends a process that clones itself in this way.
bool runs_in_valgrind() {
  const char* const preloaded = environment_variable("LD_PRELOAD");
  return preloaded && strstr(preloaded, "/vgpreload_");
}

// --- The child

void answer_fault(int, siginfo_t* fault, void*) {
  const std::uintptr_t page = page_begin(word(fault->si_addr));
  const long mapped = system_call(SYS_mmap, page, page_bytes(), PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, static_cast<std::uintptr_t>(-1));
  if (!page || mapped < 0) system_call(SYS_exit_group, 1);
  fetch_from_parent(page, page_bytes());
}

[[noreturn]] void live_as_child(const CopyWork& work,
                                int (*set_action)(int, const struct sigaction*, struct sigaction*)) {
  struct sigaction action {};
  action.sa_sigaction = answer_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigset_t faults;
  sigemptyset(&faults);
  for (const int fault : {SIGSEGV, SIGBUS}) {
    set_action(fault, &action, nullptr);
    sigaddset(&faults, fault);
  }
  system_call(SYS_rt_sigprocmask, SIG_UNBLOCK, word(&faults), 0, 8);
  system_call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
  const bool done = work.work(work.context);
  tell(done ? kDone : kOver);
  for (;;) system_call(SYS_exit_group, 0);
}

// --- The parent

// The system reads for us, and where there is nothing it says so: another thread may unmap it meanwhile. Into a pipe:
// a file may be of no more than so many bytes.
void answer_child() {
  if (shared->pipe[0] < 0 && system_call(SYS_pipe2, word(shared->pipe), O_CLOEXEC | O_NONBLOCK) == 0)
    for (int& end : shared->pipe) end = keep_apart(end);
  shared->answered_bytes = system_call(SYS_write, word(shared->pipe[1]), shared->asked_first, shared->asked_bytes);
  tell(kAnswered);
}

CopyEnd wait_for_child(long child) {
  constexpr timespec kTick{0, 5'000'000};
  const auto reap = [child](int flags) {
    int status = 0;
    return system_call(SYS_wait4, word(child), word(&status), word(__WALL | flags));
  };
  for (;;) {
    const std::uint32_t state = shared->state.load(std::memory_order_acquire);
    if (state == kAsking) {
      answer_child();
    } else if (state == kDone || state == kOver) {
      reap(0);
      return state == kDone ? CopyEnd::done : CopyEnd::no_time;
    } else if (const long ended = reap(WNOHANG); ended == child || ended == -ECHILD) {
      // It may have ended between the two looks.
      if (shared->state.load(std::memory_order_acquire) == kDone) return CopyEnd::done;
      return CopyEnd::crashed;
    } else if (monotonic_ns() > deadline_ns) {
      system_call(SYS_kill, word(child), SIGKILL);
      reap(0);
      return CopyEnd::no_time;
    } else {
      wait_while(state, kTick);
    }
  }
}

CopyEnd clone_and_wait(const CopyWork& work) {
  using SetAction = int (*)(int, const struct sigaction*, struct sigaction*);
  const auto set_action = reinterpret_cast<SetAction>(next_definition("sigaction"));
  if (!set_action) return CopyEnd::refused;
  // No handler of the program's runs in the child, nor does one in this thread end the process before the child.
  std::uint64_t all = ~std::uint64_t{0}, before = 0;
  system_call(SYS_rt_sigprocmask, SIG_SETMASK, word(&all), word(&before), 8);
  work.before_copy(work.context);
  const long child = system_call(SYS_clone, CLONE_FILES | CLONE_UNTRACED, 0);
  if (child == 0) live_as_child(work, set_action);
  work.after_copy(work.context);
  const CopyEnd end = child > 0 ? wait_for_child(child) : CopyEnd::refused;
  system_call(SYS_rt_sigprocmask, SIG_SETMASK, word(&before), 0, 8);
  return end;
}

int open_to_read(const char* path) {
  return keep_apart(system_call(SYS_openat, word(AT_FDCWD), word(path), O_RDONLY | O_CLOEXEC));
}

void close_file(int& file) {
  if (file >= 0) system_call(SYS_close, word(file));
  file = -1;
}

}  // namespace

const char* reason_of(CopyEnd end) {
  constexpr const char* kReasons[] = {"",
                                      "the process has a filter of system calls (seccomp)",
                                      "the process runs in Valgrind",
                                      "its child processes are in another pid namespace",
                                      "the time limit (CISTERN_LEAK_CHECK) is too short",
                                      "there is not enough memory for a copy of the process",
                                      "/proc is missing or does not show its memory",
                                      "the system refused a copy of the process",
                                      "the copy of the process was killed"};
  return kReasons[static_cast<int>(end)];
}

[[gnu::cold]] CopyEnd work_in_copy(const CopyWork& work) {
  if (system_calls_are_filtered()) return CopyEnd::filtered;
  if (runs_in_valgrind()) return CopyEnd::emulated;
  deadline_ns = monotonic_ns() + work.limit_ns;
  const SmallFile<4096> status("/proc/thread-self/status");
  if (has_own_filter(status)) return CopyEnd::filtered;
  if (children_are_elsewhere()) return CopyEnd::elsewhere;
  const std::uint64_t tables = status.number_after("VmPTE:").value_or(0) * 1024;
  if (tables / kMiB * kNanosecondsPerTableMiB > work.limit_ns / 2) return CopyEnd::no_time;
  // Nobody is kept waiting for what cannot be done in time: no look at memory is faster.
  const std::uint64_t anonymous = status.number_after("RssAnon:").value_or(0) * 1024;
  if (anonymous / kMiB * kNanosecondsPerMiB > work.limit_ns) return CopyEnd::no_time;
  // Other threads write meanwhile: each page of theirs is copied then.
  const bool alone = status.number_after("\nThreads:").value_or(0) == 1;
  const std::uint64_t written = alone ? 0 : anonymous;
  const std::uint64_t needed = 2 * tables + written + kRoomBytes, room = available_bytes();
  if (room < needed) return CopyEnd::no_room;
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return CopyEnd::refused;
  shared = new (memory) Shared;
  shared->pipe[0] = shared->pipe[1] = -1;
  unreadable = 0;
  may_fetch_bytes = (room - needed) / 2;
  pagemap = open_to_read("/proc/thread-self/pagemap");
  maps = open_to_read("/proc/thread-self/maps");
  timers = open_to_read("/proc/self/timers");
  void* const own =
      mmap(nullptr, work.memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  own_memory = static_cast<char*>(own);
  own_memory_bytes = own_bytes = work.memory_bytes;
  CopyEnd end = own == MAP_FAILED ? CopyEnd::refused : CopyEnd::unseen;
  if (pagemap >= 0 && maps >= 0 && own != MAP_FAILED) end = clone_and_wait(work);
  if (own != MAP_FAILED) munmap(own, work.memory_bytes);
  close_file(pagemap);
  close_file(maps);
  close_file(timers);
  for (int& end : shared->pipe) close_file(end);
  for (unsigned i = 0; i < shared->opened_count; ++i) close_file(shared->opened[i]);
  munmap(memory, sizeof(Shared));
  return end;
}

bool copy_time_is_over() { return monotonic_ns() > deadline_ns; }

std::uint64_t unreadable_bytes() { return unreadable; }

void* take_in_copy(std::size_t bytes) {
  bytes = whole_pages(bytes);
  if (bytes > own_bytes) return nullptr;
  own_bytes -= bytes;
  return own_memory + own_bytes;
}

CopyMemory memory_of_copy() { return {word(own_memory), word(own_memory) + own_memory_bytes}; }

int open_in_copy(const char* path) {
  if (shared->opened_count == std::size(shared->opened)) return -1;
  const int file = open_to_read(path);
  if (file >= 0) shared->opened[shared->opened_count++] = file;
  return file;
}

int parent_pagemap() { return pagemap; }
int parent_maps() { return maps; }
int parent_timers() { return timers; }

void fetch_from_parent(std::uintptr_t first, std::size_t bytes) {
  constexpr timespec kTick{0, 20'000'000};
  if (bytes > may_fetch_bytes) {
    unreadable += bytes;
    return;
  }
  may_fetch_bytes -= bytes;
  while (bytes) {
    const std::size_t part = std::min(bytes, kFetchBytes);
    shared->asked_first = first;
    shared->asked_bytes = part;
    tell(kAsking);
    std::uint32_t state;
    while ((state = shared->state.load(std::memory_order_acquire)) == kAsking) {
      if (copy_time_is_over()) system_call(SYS_exit_group, 1);  // nobody answers any more
      wait_while(state, kTick);
    }
    const long told = shared->answered_bytes;
    if (told > 0) system_call(SYS_read, word(shared->pipe[0]), first, static_cast<std::uintptr_t>(told));
    // What is behind a page that cannot be read may be readable again.
    const std::size_t done = told > 0 ? static_cast<std::size_t>(told) : std::min<std::size_t>(part, page_bytes());
    if (told <= 0) unreadable += done;
    first += done;
    bytes -= done;
  }
}

}  // namespace cistern
