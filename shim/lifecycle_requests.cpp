// See lifecycle_requests.hpp.
#include "shim/lifecycle_requests.hpp"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "pool/base/system_call.hpp"
#include "shim/core/core.hpp"
#include "shim/core/judging.hpp"
#include "shim/process/lookup.hpp"
#include "shim/process/process.hpp"
#include "shim/process/system_filter.hpp"
#include "shim/process/uncounted.hpp"

namespace cistern {
namespace {

using Create = decltype(&pthread_create);

// The process that is to report; 0: none. A child of a fork may find its parent's there.
constinit std::atomic<int> asked{0};

void futex(int operation, unsigned value) {
  system_call(SYS_futex, reinterpret_cast<std::uintptr_t>(&asked),
              static_cast<std::uintptr_t>(operation | FUTEX_PRIVATE_FLAG), value, 0, 0, 0);
}

// Requests that come while one is answered are one.
void* answer_requests(void*) {
  note_own_thread(static_cast<int>(system_call(SYS_gettid)));
  for (;;) {
    const int process = asked.exchange(0);
    if (!process)
      futex(FUTEX_WAIT, 0);
    else if (process == getpid() && phase() == Phase::running && !system_calls_are_filtered())
      report_now();
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
  pthread_t thread;
  const bool started = create && create(&thread, nullptr, answer_requests, nullptr) == 0;
  system_call(SYS_rt_sigprocmask, SIG_SETMASK, reinterpret_cast<std::uintptr_t>(&before), 0, sizeof before);
  return started;
}

void request_report() {
  asked.store(getpid());
  futex(FUTEX_WAKE, 1);
}

}  // namespace cistern
