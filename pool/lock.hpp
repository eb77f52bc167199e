// A small mutual exclusion lock that is constant-initialised and works before any constructor ran. Each thread knows
// how many it holds, so that a signal handler can tell whether it interrupted a critical section of its own thread.
//
// A lock names its holder, for the sake of fork. The thread that forks takes all locks (shim/core/fork.cpp), so that
// the child finds what they guard whole. Meanwhile it waits for locks of the C library, and whoever has one of those
// may be about to allocate: what malloc needs is taken with lock_unless_forking, which does not wait for a fork. And a
// signal handler may fork that interrupted this very thread in a critical section: the lock stays with the code that
// was interrupted, which goes on in the child as it does in the parent.
#pragma once
#include <linux/futex.h>
#include <time.h>

#include <atomic>
#include <climits>
#include <cstdint>

#include "pool/system_call.hpp"

namespace cistern {

[[gnu::tls_model("initial-exec")]] inline constinit thread_local int locks_held = 0;

// The holder's thread pointer, which is a multiple of 16, and flags.
namespace lock_word {
constexpr std::uintptr_t kFree = 0, kContended = 1, kForking = 2, kFlags = 15;
inline std::uintptr_t of_this_thread() { return reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer()); }
inline bool held_here(std::uintptr_t word) { return (word & ~kFlags) == of_this_thread(); }
// The kernel compares the half of the word that has the flags; of the other half it need not know.
inline void sleep_while(const std::atomic<std::uintptr_t>& at, std::uintptr_t word, const timespec* at_most) {
  system_call(SYS_futex, reinterpret_cast<std::uintptr_t>(&at), FUTEX_WAIT_PRIVATE, static_cast<std::uint32_t>(word),
              reinterpret_cast<std::uintptr_t>(at_most));
}
}  // namespace lock_word

class Lock {
 public:
  constexpr Lock() = default;
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  // Counted from before the lock is taken until after it is free: the signal may come in between.
  void lock() {
    locks_held = locks_held + 1;
    if (!take_free()) [[unlikely]]
      wait(false);
  }
  // False: a thread that forks holds it, perhaps this one.
  bool lock_unless_forking() {
    locks_held = locks_held + 1;
    if (take_free() || wait(true)) [[likely]]
      return true;
    locks_held = locks_held - 1;
    return false;
  }
  void unlock() {
    if (word_.exchange(lock_word::kFree, std::memory_order_release) & lock_word::kContended) [[unlikely]]
      wake(1);
    locks_held = locks_held - 1;
  }
  bool held_here() const { return lock_word::held_here(word_.load(std::memory_order_relaxed)); }
  bool held_elsewhere() const { return word_.load(std::memory_order_relaxed) != lock_word::kFree && !held_here(); }

  // Not when this thread holds it already: see above. Those that wait and need not wait for a fork are told.
  void lock_for_fork() {
    if (held_here()) return;
    lock();
    word_.store(lock_word::of_this_thread() | lock_word::kForking | lock_word::kContended, std::memory_order_relaxed);
    wake(INT_MAX);
  }
  // In the parent and in the child. What lock_for_fork did not take is left alone.
  void unlock_after_fork() {
    if (held_here() && word_.load(std::memory_order_relaxed) & lock_word::kForking) unlock();
  }

 private:
  bool take_free() {
    std::uintptr_t expected = lock_word::kFree;
    return word_.compare_exchange_strong(expected, lock_word::of_this_thread(), std::memory_order_acquire);
  }

  // Whoever has waited leaves the lock marked as contended: others may be waiting still.
  [[gnu::noinline]] bool wait(bool unless_forking) {
    for (int looks = 0;; ++looks) {
      std::uintptr_t seen = word_.load(std::memory_order_relaxed);
      if (seen == lock_word::kFree) {
        if (word_.compare_exchange_weak(seen, lock_word::of_this_thread() | lock_word::kContended,
                                        std::memory_order_acquire, std::memory_order_relaxed))
          return true;
      } else if (unless_forking && seen & lock_word::kForking) {
        return false;
      } else if (looks >= kLooks &&
                 (seen & lock_word::kContended ||
                  word_.compare_exchange_weak(seen, seen | lock_word::kContended, std::memory_order_relaxed))) {
        lock_word::sleep_while(word_, seen | lock_word::kContended, nullptr);
      }
    }
  }

  [[gnu::noinline]] void wake(int threads) {
    system_call(SYS_futex, reinterpret_cast<std::uintptr_t>(&word_), FUTEX_WAKE_PRIVATE,
                static_cast<std::uintptr_t>(threads));
  }

  static constexpr int kLooks = 50;
  std::atomic<std::uintptr_t> word_{lock_word::kFree};
};

// The same, but given back by a mere store, and whoever waits spins: for what is hardly ever contended.
class SpinLock {
 public:
  void lock() {
    locks_held = locks_held + 1;
    for (int looks = 0; !take_free(); ++looks) pause(looks);
  }
  bool lock_unless_forking() {
    locks_held = locks_held + 1;
    for (int looks = 0; !take_free(); pause(looks++)) {
      if (!(word_.load(std::memory_order_relaxed) & lock_word::kForking)) continue;
      locks_held = locks_held - 1;
      return false;
    }
    return true;
  }
  void unlock() {
    word_.store(lock_word::kFree, std::memory_order_release);
    locks_held = locks_held - 1;
  }
  bool held_here() const { return lock_word::held_here(word_.load(std::memory_order_relaxed)); }
  void lock_for_fork() {
    if (held_here()) return;
    lock();
    word_.store(lock_word::of_this_thread() | lock_word::kForking, std::memory_order_relaxed);
  }
  void unlock_after_fork() {
    if (held_here() && word_.load(std::memory_order_relaxed) & lock_word::kForking) unlock();
  }

 private:
  bool take_free() {
    std::uintptr_t expected = lock_word::kFree;
    return word_.compare_exchange_strong(expected, lock_word::of_this_thread(), std::memory_order_acquire);
  }

  // Nobody is woken, so nobody sleeps long.
  void pause(int looks) {
    static constexpr timespec kShort{0, 50'000};
    const std::uintptr_t seen = word_.load(std::memory_order_relaxed);
    if (looks >= kLooks && seen != lock_word::kFree) lock_word::sleep_while(word_, seen, &kShort);
  }

  static constexpr int kLooks = 50;
  std::atomic<std::uintptr_t> word_{lock_word::kFree};
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

// For what malloc needs; false: this has to do without what the lock guards.
template <class L = Lock>
class LockedUnlessForking {
 public:
  explicit LockedUnlessForking(L& lock) : lock_(lock), locked_(lock.lock_unless_forking()) {}
  ~LockedUnlessForking() {
    if (locked_) lock_.unlock();
  }
  LockedUnlessForking(const LockedUnlessForking&) = delete;
  LockedUnlessForking& operator=(const LockedUnlessForking&) = delete;
  explicit operator bool() const { return locked_; }

 private:
  L& lock_;
  const bool locked_;
};

}  // namespace cistern
