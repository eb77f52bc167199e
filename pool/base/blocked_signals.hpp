// Signals kept away from this thread: from what a handler must not interrupt, as it might fork or exit; and, by being
// inherited, from threads of ours.
#pragma once
#include <pthread.h>
#include <signal.h>

#include <cstdint>
#include <cstring>

#include "pool/base/system_call.hpp"

namespace cistern {

class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    std::memset(&all, 0xff, sizeof all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// The same by the kernel's own call, for who holds a lock. Faults come through.
class SignalsBlockedUnderLocks {
 public:
  SignalsBlockedUnderLocks() {
    std::uint64_t all = ~std::uint64_t{0};
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS})
      all &= ~(std::uint64_t{1} << (fault - 1));
    set(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlockedUnderLocks() { set(SIG_SETMASK, &before_, nullptr); }
  SignalsBlockedUnderLocks(const SignalsBlockedUnderLocks&) = delete;
  SignalsBlockedUnderLocks& operator=(const SignalsBlockedUnderLocks&) = delete;

 private:
  static void set(int how, const std::uint64_t* mask, std::uint64_t* before) {
    system_call(SYS_rt_sigprocmask, static_cast<std::uintptr_t>(how), reinterpret_cast<std::uintptr_t>(mask),
                reinterpret_cast<std::uintptr_t>(before), sizeof *mask);
  }
  std::uint64_t before_ = 0;
};

// In a thread that inherited that: a fault would otherwise end the process past a handler of the program's.
inline void let_faults_through() {
  sigset_t faults;
  sigemptyset(&faults);
  for (const int fault : {SIGSEGV, SIGBUS}) sigaddset(&faults, fault);
  pthread_sigmask(SIG_UNBLOCK, &faults, nullptr);
}

}  // namespace cistern
