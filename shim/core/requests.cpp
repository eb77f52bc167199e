// See requests.hpp.
#include "shim/core/requests.hpp"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string_view>

#include "pool/base/blocked_signals.hpp"
#include "pool/base/clock.hpp"
#include "pool/base/file_status.hpp"
#include "pool/base/forked.hpp"
#include "pool/base/system_call.hpp"
#include "shim/core/core.hpp"
#include "shim/core/live.hpp"
#include "shim/core/maintenance.hpp"
#include "shim/judging/judging.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/process.hpp"
#include "shim/process/small_file.hpp"
#include "shim/process/uncounted.hpp"

namespace cistern {
namespace {

// Ours are not linked to: most processes start no such thread.
template <class Function>
Function* called(const char* name) {
  return reinterpret_cast<Function*>(first_definition(name));
}

// The process that is to report; 0: none. A child of a fork may find its parent's there.
constinit std::atomic<int> asked{0};
constinit std::atomic<bool> is_to_end{false};
constinit std::atomic<std::uint32_t> own_bell{0};

constinit pthread_t thread;
constinit std::atomic<bool> is_there{false};
constinit std::atomic<std::uint32_t> has_left{0};  // 1: it has

constexpr std::uint64_t kLookNs = 1'000'000'000;

std::atomic<std::uint32_t>& current_bell() {
  std::atomic<std::uint32_t>* const of_page = live::bell();
  return of_page ? *of_page : own_bell;
}

// Other processes ring the page's bell.
void futex(std::atomic<std::uint32_t>& word, int operation, unsigned value, std::uint64_t at_most_ns = 0) {
  const timespec at_most{static_cast<time_t>(at_most_ns / kLookNs), static_cast<long>(at_most_ns % kLookNs)};
  system_call(SYS_futex, reinterpret_cast<std::uintptr_t>(&word), static_cast<std::uintptr_t>(operation), value,
              reinterpret_cast<std::uintptr_t>(&at_most), 0, 0);
}

void ring(std::atomic<std::uint32_t>& bell) {
  bell.fetch_add(1);
  futex(bell, FUTEX_WAKE, 1);
}
// The thread may still wait at the one of before there was a page.
void ring() {
  ring(own_bell);
  if (std::atomic<std::uint32_t>* const of_page = live::bell()) ring(*of_page);
}

// The program's threads have all ended, the first one by pthread_exit: a thread that waits here would keep it alive.
bool is_last_thread() {
  const SmallFile<1024> status("/proc/self/stat");
  const std::string_view text = status.text();
  const std::size_t name_end = text.rfind(')');
  if (name_end == text.npos || text.substr(name_end).substr(0, 3) != ") Z") return false;
  struct stat tasks;
  constexpr nlink_t kNoTask = 2;
  return !status_of_file("/proc/self/task", tasks) && tasks.st_nlink <= kNoTask + 2;
}

// Requests that come while one is answered are one.
void answer_until_dismissed() {
  for (std::uint64_t looked_ns = coarse_monotonic_ns();;) {
    std::atomic<std::uint32_t>& bell = current_bell();
    const std::uint32_t rung = bell.load();
    if (is_to_end.load()) return;
    const int process = asked.exchange(0);
    std::uint64_t rest_ns = kLookNs;
    if (phase() == Phase::running) {
      if (process == this_process()) report_now();
      live::answer();
      rest_ns = std::min(rest_ns, maintenance::work());
    }
    if (bell.load() != rung) continue;
    futex(bell, FUTEX_WAIT, rung, rest_ns);
    if (bell.load() != rung || coarse_monotonic_ns() - looked_ns < kLookNs / 2) continue;
    if (is_last_thread()) return;
    looked_ns = coarse_monotonic_ns();
  }
}

void* begin_thread(void*) {
  static constexpr char kName[] = "cistern";
  system_call(SYS_prctl, PR_SET_NAME, reinterpret_cast<std::uintptr_t>(kName));
  note_own_thread(static_cast<int>(system_call(SYS_gettid)));
  answer_until_dismissed();
  has_left = 1;
  futex(has_left, FUTEX_WAKE, 1);
  return nullptr;
}

// A report needs some hundred KiB, and the program may have made the stacks of its threads small.
bool create_thread() {
  constexpr std::size_t kStackBytesMin = std::size_t{2} << 20;
  const auto create = called<decltype(pthread_create)>("pthread_create");
  const auto init = called<decltype(pthread_attr_init)>("pthread_attr_init");
  const auto stack = called<decltype(pthread_attr_getstacksize)>("pthread_attr_getstacksize");
  const auto set_stack = called<decltype(pthread_attr_setstacksize)>("pthread_attr_setstacksize");
  const auto destroy = called<decltype(pthread_attr_destroy)>("pthread_attr_destroy");
  pthread_attr_t how;
  if (!create || !init || !stack || !set_stack || !destroy || init(&how)) return false;
  std::size_t bytes = 0;
  if (stack(&how, &bytes) == 0 && bytes < kStackBytesMin) set_stack(&how, kStackBytesMin);
  const bool started = create(&thread, &how, begin_thread, nullptr) == 0;
  destroy(&how);
  return started;
}

}  // namespace

// None of the program's signals is for it. The C library's own are not blocked: setuid waits for all threads.
bool await_requests() {
  if (is_there.exchange(true)) {
    ring();
    return true;
  }
  has_left = 0;
  const Uncounted uncounted;
  const SignalsBlocked blocked;
  is_there = create_thread();
  return is_there.load();
}

void dismiss_requests() {
  const auto join = called<decltype(pthread_join)>("pthread_join");
  if (!join || !is_there.load()) return;
  is_to_end = true;
  ring();
  join(thread, nullptr);
  is_to_end = false;
  is_there = false;
}

// A thread that does not leave may wait for what the exiting one has: it stays asleep, or ends with the process.
void dismiss_requests_at_exit() {
  constexpr std::uint64_t kPatienceNs = 1'000'000'000;
  if (!is_there.load()) return;
  is_to_end = true;
  ring();
  const std::uint64_t begin_ns = coarse_monotonic_ns();
  while (!has_left.load() && coarse_monotonic_ns() - begin_ns < kPatienceNs)
    futex(has_left, FUTEX_WAIT, 0, kPatienceNs);
  if (has_left.load()) dismiss_requests();
}

void requests_after_fork_in_child() {
  set_in_child(is_to_end, false);
  set_in_child(is_there, false);
}

void request_report() {
  asked.store(this_process());
  ring();
}

}  // namespace cistern
