// A small mutual exclusion lock that is constant-initialised, works before any constructor ran, and may be
// held across fork by the forking thread and released in the child. Each thread knows how many it holds, so that
// a signal handler can tell whether it interrupted a critical section of its own thread.
#pragma once
#include <atomic>

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
    int expected = kFree;
    if (!state_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire)) [[unlikely]]
      wait();
  }
  void unlock() {
    if (state_.exchange(kFree, std::memory_order_release) == kContended) [[unlikely]]
      state_.notify_one();
    locks_held = locks_held - 1;
  }

 private:
  enum : int { kFree, kHeld, kContended };

  // Whoever has waited leaves the lock marked as contended: others may be waiting still.
  [[gnu::noinline]] void wait() {
    while (state_.exchange(kContended, std::memory_order_acquire) != kFree)
      state_.wait(kContended, std::memory_order_relaxed);
  }

  std::atomic<int> state_{kFree};
};

template <class L = Lock>
class Locked {
 public:
  explicit Locked(L& lock) : lock_(lock) { lock_.lock(); }
  ~Locked() { lock_.unlock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  L& lock_;
};

}  // namespace cistern
