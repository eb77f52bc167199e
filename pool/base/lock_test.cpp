// A long lock: who has it is told so when he comes again, others wait as long as they want to; and what a debug build
// says of foreign code under the other locks.
#include "pool/base/lock.hpp"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace cistern
