// A long lock: who has it is told so when he comes again, others wait as long as they want to; and what a debug build
// says of foreign code under the other locks.
#include "pool/base/lock.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "pool/base/foreign.hpp"

namespace cistern {
namespace {

TEST(LongLock, TellsItsOwnerThatHeHasIt) {
  LongLock lock;
  ASSERT_TRUE(lock.lock());
  EXPECT_FALSE(lock.lock());
  EXPECT_TRUE(lock.held_here());
  EXPECT_EQ(locks_held, 0) << "foreign code runs under it";
  lock.unlock();
  ASSERT_TRUE(lock.lock());
  lock.unlock();
}

TEST(LongLock, IsWaitedForOnlySoLong) {
  LongLock lock;
  ASSERT_TRUE(lock.lock());
  std::thread([&] {
    EXPECT_FALSE(lock.held_here());
    EXPECT_FALSE(lock.lock_within(1'000'000));
  }).join();
  lock.unlock();
}

TEST(LongLock, GoesToOneThreadAfterTheOther) {
  constexpr int kThreads = 4, kTimes = 2000;
  LongLock lock;
  int count = 0;
  std::thread threads[kThreads];
  for (std::thread& thread : threads)
    thread = std::thread([&] {
      for (int i = 0; i < kTimes; ++i) {
        EXPECT_TRUE(lock.lock());
        ++count;
        lock.unlock();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, kThreads * kTimes);
}

#ifndef NDEBUG
TEST(ForeignDeathTest, IsNotCalledUnderALock) {
  Lock lock;
  const Foreign<int()> foreign = [] { return 3; };
  EXPECT_EQ(foreign(), 3);
  EXPECT_DEATH(
      {
        const Locked hold(lock);
        foreign();
      },
      "locks_held");
}
#endif

TEST(Foreign, IsCalledUnderTheLocksOfAFork) {
  Lock lock;
  SpinLock spin;
  const Foreign<int()> foreign = [] { return 3; };
  lock.lock_for_fork();
  spin.lock_for_fork();
  EXPECT_EQ(foreign(), 3);
  spin.unlock_after_fork();
  lock.unlock_after_fork();
}

// A thread that sleeps for the lock, and need not wait for a fork, is woken by a fork that takes it. So is one that has
// to wait, when the fork is over.
TEST(Lock, WhoSleepsIsWokenByAFork) {
  for (int round = 0; round < 100; ++round) {
    Lock lock;
    std::atomic<int> told{0}, waited{0};
    lock.lock();
    std::thread need_not_wait([&] {
      if (lock.lock_unless_forking()) lock.unlock();
      told = 1;
    });
    std::thread has_to_wait([&] {
      lock.lock();
      lock.unlock();
      waited = 1;
    });
    std::thread forks([&] {
      lock.lock_for_fork();
      while (!told) std::this_thread::yield();
      lock.unlock_after_fork();
    });
    std::this_thread::sleep_for(std::chrono::microseconds(round * 20));
    lock.unlock();
    forks.join();
    need_not_wait.join();
    has_to_wait.join();
    EXPECT_EQ(told + waited, 2);
    EXPECT_FALSE(lock.held_elsewhere() || lock.held_here());
  }
}

}  // namespace
}  // namespace cistern
