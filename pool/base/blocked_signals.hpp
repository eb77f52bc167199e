// Signals kept away from this thread: from what a handler must not interrupt, as it might fork or exit; and, by being
// inherited, from threads of ours.
#pragma once
#include <pthread.h>
#include <signal.h>

#include <cstring>

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

// In a thread that inherited that: a fault would otherwise end the process past a handler of the program's.
inline void let_faults_through() {
  sigset_t faults;
  sigemptyset(&faults);
  for (const int fault : {SIGSEGV, SIGBUS}) sigaddset(&faults, fault);
  pthread_sigmask(SIG_UNBLOCK, &faults, nullptr);
}

}  // namespace cistern
