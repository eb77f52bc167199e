// See lifecycle_requests.hpp.
#include "shim/lifecycle_requests.hpp"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <string_view>

#include "pool/base/file_status.hpp"
#include "pool/base/system_call.hpp"
#include "shim/core/core.hpp"
#include "shim/judging/judging.hpp"
#include "shim/lifecycle.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/process.hpp"
#include "shim/process/small_file.hpp"
#include "shim/process/uncounted.hpp"

namespace cistern {
namespace {

using Create = decltype(&pthread_create);
using Join = decltype(&pthread_join);

// The process that is to report; 0: none. A child of a fork may find its parent's there.
constinit std::atomic<int> asked{0};
constexpr int kEnd = -1;

constinit pthread_t thread;
constinit bool is_there = false;

constexpr timespec kLook{1, 0};

void futex(int operation, unsigned value) {
  system_call(SYS_futex, reinterpret_cast<std::uintptr_t>(&asked),
              static_cast<std::uintptr_t>(operation | FUTEX_PRIVATE_FLAG), value,
              reinterpret_cast<std::uintptr_t>(&kLook), 0, 0);
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
void* answer_requests(void*) {
  note_own_thread(static_cast<int>(system_call(SYS_gettid)));
  for (;;) {
    const int process = asked.exchange(0);
    if (process == kEnd) return nullptr;
    if (process == getpid() && phase() == Phase::running) report_now();
    if (process) continue;
    futex(FUTEX_WAIT, 0);
    if (!asked.load() && is_last_thread()) return nullptr;
  }
}

}  // namespace

// With all signals blocked: none of the program's is for it.
bool await_requests() {
  const Uncounted uncounted;
  const auto create = reinterpret_cast<Create>(first_definition("pthread_create"));
  std::uint64_t all = ~std::uint64_t{0}, before = 0;
  system_call(SYS_rt_sigprocmask, SIG_SETMASK, reinterpret_cast<std::uintptr_t>(&all),
              reinterpret_cast<std::uintptr_t>(&before), sizeof all);
  is_there = create && create(&thread, nullptr, answer_requests, nullptr) == 0;
  system_call(SYS_rt_sigprocmask, SIG_SETMASK, reinterpret_cast<std::uintptr_t>(&before), 0, sizeof before);
  return is_there;
}

void dismiss_requests() {
  const auto join = reinterpret_cast<Join>(first_definition("pthread_join"));
  if (!is_there || !join) return;
  asked.store(kEnd);
  futex(FUTEX_WAKE, 1);
  join(thread, nullptr);
  is_there = false;
}

void request_report() {
  asked.store(this_process());
  futex(FUTEX_WAKE, 1);
}

}  // namespace cistern
