// ThreadCaches: what a thread finds of its own, what others may take out, and what stays when a thread or process ends.
#include "pool/thread_cache.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <thread>
#include <vector>

#include "pool/recycle_pool.hpp"
#include "tests/support/random.hpp"

namespace cistern {
namespace {

using Caches = ThreadCaches<PoolKey, PoolKeyHash, int>;

constexpr std::uint64_t kRoomy = 1 << 30;

PoolKey key(std::uint64_t bytes, std::uintptr_t group = 1) { return {group, 0, bytes}; }

std::vector<int> drained(Caches& caches) {
  std::vector<int> chunks;
  caches.drain([](const PoolKey&, std::uint64_t, int) { return true; },
               [&](const PoolKey&, int chunk, std::uint64_t) { chunks.push_back(chunk); });
  std::sort(chunks.begin(), chunks.end());
  return chunks;
}

TEST(ThreadCacheTest, AThreadTakesWhatItGave) {
  Caches caches;
  test::in_new_thread([&] {
    EXPECT_FALSE(caches.take(key(64)));
    EXPECT_TRUE(caches.give(key(64), 7, 1, kRoomy));
    EXPECT_EQ(caches.bytes(), 64u);
    EXPECT_FALSE(caches.take(key(65)));
    EXPECT_FALSE(caches.take(key(64, 2)));
    EXPECT_EQ(caches.take(key(64)), 7);
    EXPECT_FALSE(caches.take(key(64)));
    EXPECT_EQ(caches.bytes(), 0u);
  });
}

// More than have a place in thread-local memory, one after another and at once.
TEST(ThreadCacheTest, EachObjectHasCachesOfItsOwn) {
  for (int round = 0; round < 3; ++round) {
    std::array<std::unique_ptr<Caches>, 20> all;
    for (auto& caches : all) caches = std::make_unique<Caches>();
    const auto give_and_take = [&](int chunk) {
      for (auto& caches : all) EXPECT_FALSE(caches->take(key(64)));
      for (auto& caches : all) EXPECT_TRUE(caches->give(key(64), chunk++, 1, kRoomy));
      for (auto& caches : all) EXPECT_EQ(caches->bytes(), 64u);
      for (auto& caches : all) EXPECT_EQ(caches->take(key(64)), chunk++ - 20);
      EXPECT_TRUE(all[3]->give(key(64), 1000, 1, kRoomy));
      EXPECT_TRUE(all[17]->give(key(64), 1001, 1, kRoomy));
    };
    give_and_take(0);
    EXPECT_EQ(drained(*all[3]), std::vector<int>{1000});
    EXPECT_EQ(drained(*all[17]), std::vector<int>{1001});
    test::in_new_thread([&] { give_and_take(100); });
    EXPECT_EQ(drained(*all[3]), std::vector<int>{1000}) << "of a thread that has ended";
    EXPECT_EQ(drained(*all[17]), std::vector<int>{1001});
  }
}

TEST(ThreadCacheTest, AFullSetRefusesUntilOneIsTaken) {
  Caches caches;
  test::in_new_thread([&] {
    int accepted = 0;
    while (accepted < 100 && caches.give(key(64), accepted, 1, kRoomy)) ++accepted;
    EXPECT_EQ(accepted, 4);
    EXPECT_EQ(caches.bytes(), 4u * 64);
    ASSERT_TRUE(caches.take(key(64)));
    EXPECT_TRUE(caches.give(key(64), 100, 1, kRoomy));
    EXPECT_EQ(drained(caches).size(), 4u);
  });
}

TEST(ThreadCacheTest, AllCachesTogetherKeepTheLimit) {
  Caches caches;
  test::in_new_thread([&] {
    EXPECT_TRUE(caches.give(key(60), 1, 1, 100));
    test::in_new_thread([&] {
      EXPECT_FALSE(caches.give(key(41), 2, 1, 100));
      EXPECT_TRUE(caches.give(key(40), 3, 1, 100));
      EXPECT_FALSE(caches.give(key(1), 4, 1, 100));
    });
    EXPECT_EQ(caches.bytes(), 100u);
    EXPECT_EQ(caches.take(key(60)), 1);
    EXPECT_TRUE(caches.give(key(50), 5, 1, 100));
  });
}

// What one thread's cache held once is not lost for the others.
TEST(ThreadCacheTest, WhatACacheWasAllowedGoesToWhoNeedsIt) {
  Caches caches;
  test::in_new_thread([&] {
    EXPECT_TRUE(caches.give(key(90), 1, 1, 100));
    EXPECT_EQ(caches.take(key(90)), 1);
    test::in_new_thread([&] {
      EXPECT_TRUE(caches.give(key(80), 2, 1, 100));
      EXPECT_FALSE(caches.give(key(21), 3, 1, 100));
    });
    EXPECT_FALSE(caches.give(key(21), 4, 1, 100));
    EXPECT_TRUE(caches.give(key(20), 5, 1, 100));
    EXPECT_EQ(drained(caches), (std::vector<int>{2, 5}));
    EXPECT_EQ(caches.bytes(), 0u);
    EXPECT_TRUE(caches.give(key(100), 6, 1, 100));
    EXPECT_FALSE(caches.give(key(1), 7, 1, 100));
  });
}

TEST(ThreadCacheTest, AnotherThreadTakesOnlyByStealing) {
  Caches caches;
  test::in_new_thread([&] {
    caches.give(key(64), 7, 1, kRoomy);
    test::in_new_thread([&] {
      EXPECT_FALSE(caches.take(key(64)));
      EXPECT_FALSE(caches.steal(key(32)));
      EXPECT_EQ(caches.steal(key(64)), 7);
      EXPECT_FALSE(caches.steal(key(64)));
    });
    EXPECT_FALSE(caches.take(key(64)));
    EXPECT_EQ(caches.bytes(), 0u);
  });
}

TEST(ThreadCacheTest, AnotherThreadDrainsWhatItWants) {
  Caches caches;
  test::in_new_thread([&] {
    caches.give(key(64, 1), 1, 10, kRoomy);
    caches.give(key(64, 1), 2, 20, kRoomy);
    caches.give(key(64, 2), 3, 30, kRoomy);
    test::in_new_thread([&] {
      caches.drain([](const PoolKey& k, std::uint64_t given_ns, int) { return k.group == 1 && given_ns > 10; },
                   [](const PoolKey& k, int chunk, std::uint64_t given_ns) {
                     EXPECT_EQ(chunk, 2);
                     EXPECT_EQ(k, key(64, 1));
                     EXPECT_EQ(given_ns, 20u);
                   });
    });
    EXPECT_EQ(caches.bytes(), 128u);
    int listed = 0;
    caches.for_each([&](const PoolKey&) { ++listed; });
    EXPECT_EQ(listed, 2);
    EXPECT_EQ(caches.take(key(64, 1)), 1);
    EXPECT_FALSE(caches.take(key(64, 1)));
  });
}

TEST(ThreadCacheTest, TheCacheOfAThreadThatEndedIsAdoptedWithWhatItHolds) {
  Caches caches;
  test::in_new_thread([&] { caches.give(key(64), 7, 1, kRoomy); });
  EXPECT_EQ(caches.bytes(), 64u);
  test::in_new_thread([&] { EXPECT_EQ(caches.take(key(64)), 7); });
  test::in_new_thread([&] { caches.give(key(64), 8, 1, kRoomy); });
  EXPECT_EQ(drained(caches), std::vector<int>{8}) << "anybody drains a cache without a thread";
  const std::size_t before = internal_mapped_bytes();
  for (int i = 0; i < 500; ++i)
    test::in_new_thread([&] {
      EXPECT_TRUE(caches.give(key(64), i, 1, kRoomy));
      EXPECT_EQ(caches.take(key(64)), i);
    });
  EXPECT_EQ(internal_mapped_bytes(), before) << "one cache serves threads that come one after another";
}

// pthread runs the destructors of thread-local values in no certain order, so frees come after the cache was given up.
TEST(ThreadCacheTest, AThreadMayGiveWhileItEnds) {
  static Caches caches;
  static pthread_key_t late;
  static std::atomic<int> accepted;
  accepted = 0;
  ASSERT_EQ(pthread_key_create(&late,
                               [](void* rounds) {
                                 if (caches.give(key(64), 9, 1, kRoomy)) ++accepted;
                                 const auto left = reinterpret_cast<std::uintptr_t>(rounds) - 1;
                                 if (left) pthread_setspecific(late, reinterpret_cast<void*>(left));
                               }),
            0);
  for (int thread = 0; thread < 3; ++thread)
    test::in_new_thread([&] {
      EXPECT_EQ(pthread_setspecific(late, reinterpret_cast<void*>(3)), 0);
      if (caches.give(key(32), thread, 1, kRoomy)) ++accepted;
    });
  pthread_key_delete(late);
  EXPECT_GE(accepted.load(), 2);
  EXPECT_EQ(static_cast<std::size_t>(accepted.load()), drained(caches).size()) << "nothing is lost";
}

TEST(ThreadCacheTest, TheChildOfAForkForgetsAndStartsAfresh) {
  Caches caches;
  test::in_new_thread([&] {
    test::in_new_thread([&] { caches.give(key(64), 6, 1, kRoomy); });
    caches.give(key(64), 7, 1, kRoomy);
    caches.give(key(32), 8, 1, kRoomy);
    const std::uint64_t bytes = caches.bytes();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      caches.after_fork_in_child();
      int wrong = 0;
      if (caches.take(key(64)) || caches.steal(key(64)) || caches.bytes()) wrong |= 1;
      if (!caches.give(key(64), 1, 1, 64) || caches.bytes() != 64) wrong |= 2;
      if (caches.take(key(64)) != 1) wrong |= 4;
      _exit(wrong);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_EQ(caches.bytes(), bytes) << "the parent's caches are untouched";
  });
}

// Owners give and take, others drain and steal: a chunk is in one pair of hands, and none is lost.
TEST(ThreadCacheTest, NoChunkIsInTwoHands) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  constexpr int kThreads = 4, kChunksEach = 40;
  Caches caches;
  std::array<std::atomic<bool>, kThreads * kChunksEach> held{};
  std::atomic<int> errors{0};
  std::atomic<std::size_t> in_hands{0};
  const auto key_of = [](int chunk) { return key(64u << (chunk % 5), 1 + static_cast<std::uintptr_t>(chunk) % 2); };
  const auto work = [&](int id) {
    std::mt19937 random(seed + static_cast<unsigned>(id));
    std::vector<int> hand;
    const auto get = [&](int chunk) {
      if (held[static_cast<std::size_t>(chunk)].exchange(true)) ++errors;
      hand.push_back(chunk);
    };
    for (int i = 0; i < kChunksEach; ++i) get(id * kChunksEach + i);
    for (int step = 0; step < 20'000; ++step) {
      const PoolKey wanted = key_of(static_cast<int>(random() % 10));
      const unsigned what = random() % 20;
      if (what < 9 && !hand.empty()) {
        const int chunk = hand.back();
        hand.pop_back();
        held[static_cast<std::size_t>(chunk)] = false;
        if (!caches.give(key_of(chunk), chunk, 1, 20'000)) get(chunk);
      } else if (what < 18) {
        const auto chunk = what < 14 ? caches.take(wanted) : caches.steal(wanted);
        if (chunk && key_of(*chunk) != wanted) ++errors;
        if (chunk) get(*chunk);
      } else {
        caches.drain([&](const PoolKey& k, std::uint64_t, int) { return k == wanted; },
                     [&](const PoolKey& k, int chunk, std::uint64_t) {
                       if (key_of(chunk) != k) ++errors;
                       get(chunk);
                     });
      }
      std::shuffle(hand.begin(), hand.end(), random);
    }
    in_hands += hand.size();
  };
  std::vector<std::thread> threads;
  for (int id = 0; id < kThreads; ++id) threads.emplace_back(work, id);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(errors, 0);
  EXPECT_LE(caches.bytes(), 20'000u);
  EXPECT_EQ(in_hands + drained(caches).size(), held.size());
  EXPECT_EQ(caches.bytes(), 0u);
}

}  // namespace
}  // namespace cistern
