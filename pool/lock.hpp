// A small mutual exclusion lock that is constant-initialised, works before any constructor ran, and may be
// held across fork by the forking thread and released in the child. Each thread knows how many it holds, so that
// a signal handler can tell whether it interrupted a critical section of its own thread.
#pragma once
#include <pthread.h>

namespace cistern {

[[gnu::tls_model("initial-exec")]] inline constinit thread_local int locks_held = 0;

class Lock {
 public:
  constexpr Lock() = default;
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  // Counted from before the lock is taken until after it is free: the signal may come in between.
  void lock() {
    locks_held = locks_held + 1;
    pthread_mutex_lock(&mutex_);
  }
  void unlock() {
    pthread_mutex_unlock(&mutex_);
    locks_held = locks_held - 1;
  }

 private:
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

class Locked {
 public:
  explicit Locked(Lock& lock) : lock_(lock) { lock_.lock(); }
  ~Locked() { lock_.unlock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  Lock& lock_;
};

}  // namespace cistern
