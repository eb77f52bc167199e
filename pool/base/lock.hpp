// A small mutual exclusion lock that is constant-initialised and works before any constructor ran. Each thread knows
// how many it holds, so that a signal handler can tell whether it interrupted a critical section of its own thread.
//
// A lock names its holder, for the sake of fork. The thread that forks takes all locks (shim/core/fork.cpp), so that
// the child finds what they guard whole. An only thread needs none. Meanwhile it waits for locks of the C library, and
// whoever has one of those may be about to allocate: what malloc needs is taken with lock_unless_forking, which does
// not wait for a fork. And a signal handler may fork that interrupted this very thread in a critical section. The lock
// stays with the code that was interrupted, which goes on in the child as it does in the parent.
//
// While a thread holds a lock it calls nothing that another library may define, the C library's functions among them:
// an interposer may allocate, which comes back here, or wait for a lock of its own, which another thread may hold that
// waits for ours. Where foreign code has to run in what one thread does alone, that is under a LongLock.
//
// Room: locks, memory of our own, tables; what works before any constructor has run.
// May include: nothing of ours.
#pragma once
#include <linux/futex.h>
#include <sys/single_threaded.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <climits>
#include <cstdint>

#include "pool/base/clock.hpp"
#include "pool/base/system_call.hpp"

namespace cistern {

[[gnu::tls_model("initial-exec")]] inline constinit thread_local int locks_held = 0;

// Stands in front of calls of foreign code. The locks of a fork do not count: other libraries' handlers run under them,
// by design (shim/core/fork.cpp).
#ifdef NDEBUG
inline void count_locks_of_fork(int) {}
inline void assert_no_lock_held() {}
#else
[[gnu::tls_model("initial-exec")]] inline constinit thread_local int locks_of_fork = 0;
inline void count_locks_of_fork(int change) { locks_of_fork = locks_of_fork + change; }
inline void assert_no_lock_held() { assert(locks_held == locks_of_fork); }
#endif

// What both locks below are: the holder's thread pointer, which is a multiple of 16, and flags.
class LockWord {
 public:
  constexpr LockWord() = default;
  LockWord(const LockWord&) = delete;
  LockWord& operator=(const LockWord&) = delete;

  bool held_here() const { return is_of_this_thread(seen()); }
  bool is_held_for_fork() const { return held_here() && seen() & kForking; }
  bool held_elsewhere() const { return seen() != kFree && !held_here(); }

 protected:
  static constexpr std::uintptr_t kFree = 0, kContended = 1, kForking = 2, kFlags = 15;
  static constexpr int kLooks = 50;

  static std::uintptr_t of_this_thread() { return reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer()); }
  static bool is_of_this_thread(std::uintptr_t word) { return (word & ~kFlags) == of_this_thread(); }

  std::uintptr_t seen() const { return word_.load(std::memory_order_relaxed); }
  bool take_free() {
    std::uintptr_t expected = kFree;
    return word_.compare_exchange_strong(expected, of_this_thread(), std::memory_order_acquire);
  }
  // A process of one thread needs none of its locks for a fork. Each that is taken costs the process, and its child, a
  // copy of the page that it lies in.
  bool needed_for_fork() const { return !__libc_single_threaded && !held_here(); }
  // In one step: a signal handler may fork between any two, and give the lock back itself.
  bool give_back_after_fork(std::uintptr_t flags) {
    std::uintptr_t taken = of_this_thread() | flags;
    return seen() == taken &&
           word_.compare_exchange_strong(taken, kFree, std::memory_order_seq_cst, std::memory_order_relaxed);
  }

  // The kernel compares the half of the word that has the flags; of the other half it need not know.
  void sleep_while(std::uintptr_t word, const timespec* at_most) {
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    system_call(SYS_futex, reinterpret_cast<std::uintptr_t>(&word_), FUTEX_WAIT_PRIVATE,
                static_cast<std::uint32_t>(word), reinterpret_cast<std::uintptr_t>(at_most));
    sleepers.fetch_sub(1, std::memory_order_relaxed);
  }
  // After a change of the word, so that no thread falls asleep that is not counted yet. A fork takes a hundred locks,
  // and a thread hardly ever waits for one.
  void wake_sleepers(int threads) {
    if (sleepers.load(std::memory_order_seq_cst) != 0) [[unlikely]]
      wake(threads);
  }

  [[gnu::noinline]] void wake(int threads) {
    system_call(SYS_futex, reinterpret_cast<std::uintptr_t>(&word_), FUTEX_WAKE_PRIVATE,
                static_cast<std::uintptr_t>(threads));
  }

  // Threads that sleep for one of the locks. In a child the parent's count: a few calls too many.
  static inline constinit std::atomic<int> sleepers{0};

  std::atomic<std::uintptr_t> word_{kFree};
};

class Lock : public LockWord {
 public:
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
  // False: somebody holds it, perhaps a thread that this process does not have.
  bool try_lock() {
    locks_held = locks_held + 1;
    if (take_free()) return true;
    locks_held = locks_held - 1;
    return false;
  }
  void unlock() {
    if (word_.exchange(kFree, std::memory_order_release) & kContended) [[unlikely]]
      wake(1);
    locks_held = locks_held - 1;
  }

  // Not when this thread holds it already: see above. Those that wait and need not wait for a fork are told.
  void lock_for_fork() {
    if (!needed_for_fork()) return;
    lock();
    count_locks_of_fork(1);
    word_.store(of_this_thread() | kForking | kContended, std::memory_order_seq_cst);
    wake_sleepers(INT_MAX);
  }
  // In the parent and in the child. What lock_for_fork did not take is left alone.
  void unlock_after_fork() {
    if (!give_back_after_fork(kForking | kContended)) return;
    count_locks_of_fork(-1);
    wake_sleepers(1);
    locks_held = locks_held - 1;
  }

 private:
  // Whoever has waited leaves the lock marked as contended: others may be waiting still.
  [[gnu::noinline]] bool wait(bool unless_forking) {
    for (int looks = 0;; ++looks) {
      std::uintptr_t word = seen();
      if (word == kFree) {
        if (word_.compare_exchange_weak(word, of_this_thread() | kContended, std::memory_order_acquire,
                                        std::memory_order_relaxed))
          return true;
      } else if (unless_forking && word & kForking) {
        return false;
      } else if (looks >= kLooks && (word & kContended ||
                                     word_.compare_exchange_weak(word, word | kContended, std::memory_order_relaxed))) {
        sleep_while(word | kContended, nullptr);
      }
    }
  }
};

// The same, but given back by a mere store, and whoever waits spins: for what is hardly ever contended.
class SpinLock : public LockWord {
 public:
  void lock() {
    locks_held = locks_held + 1;
    for (int looks = 0; !take_free(); ++looks) pause(looks);
  }
  bool lock_unless_forking() {
    locks_held = locks_held + 1;
    for (int looks = 0; !take_free(); pause(looks++)) {
      if (!(seen() & kForking)) continue;
      locks_held = locks_held - 1;
      return false;
    }
    return true;
  }
  void unlock() {
    word_.store(kFree, std::memory_order_release);
    locks_held = locks_held - 1;
  }
  // A signal handler forks that interrupted this thread with the lock: who can do without it is not to wait until then.
  void mark_for_fork() {
    if (held_here()) word_.store(of_this_thread() | kForking, std::memory_order_relaxed);
  }
  void lock_for_fork() {
    if (!needed_for_fork()) return;
    lock();
    count_locks_of_fork(1);
    word_.store(of_this_thread() | kForking, std::memory_order_relaxed);
  }
  void unlock_after_fork() {
    if (!give_back_after_fork(kForking)) return;
    count_locks_of_fork(-1);
    locks_held = locks_held - 1;
  }

 private:
  // Nobody is woken, so nobody sleeps long.
  void pause(int looks) {
    static constexpr timespec kShort{0, 50'000};
    const std::uintptr_t word = seen();
    if (looks >= kLooks && word != kFree) sleep_while(word, &kShort);
  }
};

// For what one thread does for long, foreign code in it: a report, a copy of a buffer. Only entry points for it wait
// here, and never malloc, free or a hook of a driver's function; whoever has it holds no lock in the sense of the
// above. Foreign code that comes back on the same thread is told so, and another thread may be told how long to wait:
// it may hold a lock that the foreign code needs.
class LongLock : public LockWord {
 public:
  // False: this thread has it already, or another one had it all that time.
  bool lock_within(std::uint64_t nanoseconds) {
    assert_no_lock_held();
    return !held_here() && (take_free() || wait(nanoseconds));
  }
  bool lock() { return lock_within(UINT64_MAX); }
  void unlock() {
    if (word_.exchange(kFree, std::memory_order_release) & kContended) [[unlikely]]
      wake(1);
  }

 private:
  [[gnu::noinline]] bool wait(std::uint64_t at_most_ns) {
    constexpr std::uint64_t kSecond = 1'000'000'000;
    const std::uint64_t begin_ns = monotonic_ns();
    for (;;) {
      std::uintptr_t word = seen();
      if (word == kFree) {
        if (word_.compare_exchange_weak(word, of_this_thread() | kContended, std::memory_order_acquire,
                                        std::memory_order_relaxed))
          return true;
        continue;
      }
      const std::uint64_t waited_ns = monotonic_ns() - begin_ns;
      if (waited_ns >= at_most_ns) return false;
      const std::uint64_t left_ns = std::min(at_most_ns - waited_ns, kSecond);
      const timespec at_most{static_cast<time_t>(left_ns / kSecond), static_cast<long>(left_ns % kSecond)};
      if (word & kContended || word_.compare_exchange_weak(word, word | kContended, std::memory_order_relaxed))
        sleep_while(word | kContended, &at_most);
    }
  }
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
