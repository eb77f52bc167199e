// TieredPool over a fake source: both tiers, the cap over both, trims, groups that go, failures, and threads.
// The thread caches of a tag belong to the process, so every pool here runs in threads of its own.
#include "pool/tiered_pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <functional>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/fake_source.hpp"
#include "tests/support/random.hpp"

namespace cistern {
namespace {

using test::FakeSource;
using Chunk = FakeSource::Chunk;

// A release that can be held up, to look at what others do meanwhile.
class SlowSource : public FakeSource {
 public:
  void release(Chunk chunk) {
    releasing = true;
    while (hold_up) std::this_thread::yield();
    FakeSource::release(chunk);
  }
  std::atomic<bool> hold_up{false}, releasing{false};
};

using Pool = TieredPool<SlowSource>;

PoolKey key(std::uint64_t bytes, std::uintptr_t group = 1, std::uint64_t traits = 0) { return {group, traits, bytes}; }

class TieredPoolTest : public testing::Test {
 protected:
  TieredPoolTest() { pool.set_limits({.bytes_max = 1 << 30}); }
  Chunk get(const PoolKey& k) { return source.acquire({k.bytes}).chunk; }
  std::vector<Chunk> give_new(int count, const PoolKey& k, std::uint64_t now = 1) {
    std::vector<Chunk> chunks;
    for (int i = 0; i < count; ++i) chunks.push_back(get(k));
    for (Chunk chunk : chunks) pool.give(k, chunk, now);
    return chunks;
  }
  // Everything out, and every chunk of the source accounted for.
  void end(std::size_t in_hands = 0) {
    pool.trim({.keep_bytes = 0, .unused_for_ns = 0}, ~std::uint64_t{0});
    EXPECT_EQ(pool.usage().blocks, 0u);
    EXPECT_EQ(source.out(), in_hands);
    EXPECT_EQ(source.wrong_releases, 0);
  }

  SlowSource source;
  Pool pool{source};
};

TEST_F(TieredPoolTest, WhatTheThreadCacheRefusesLiesInTheSharedTier) {
  test::in_new_thread([&] {
    const std::vector<Chunk> given = give_new(10, key(4096));
    EXPECT_EQ(pool.usage().blocks, 10u);
    EXPECT_EQ(pool.usage().bytes, 10u * 4096);
    EXPECT_EQ(pool.usage().largest_bytes, 4096u);
    std::uint64_t listed = 0;
    pool.for_each([&](const PoolKey& key) { listed += key.bytes; });
    EXPECT_EQ(listed, 10u * 4096);
    std::set<Chunk> taken;
    for (int i = 0; i < 10; ++i) taken.insert(pool.take(key(4096), 2).value_or(0));
    EXPECT_EQ(taken, std::set<Chunk>(given.begin(), given.end()));
    EXPECT_FALSE(pool.take(key(4096), 2));
    EXPECT_EQ(source.releases, 0);
    end(10);
  });
}

TEST_F(TieredPoolTest, AnotherThreadFindsWhatThisOneGave) {
  test::in_new_thread([&] {
    const std::vector<Chunk> given = give_new(2, key(4096));
    test::in_new_thread([&] {
      std::set<Chunk> taken;
      for (int i = 0; i < 2; ++i) taken.insert(pool.take(key(4096), 2).value_or(0));
      EXPECT_EQ(taken, std::set<Chunk>(given.begin(), given.end()));
      EXPECT_FALSE(pool.take(key(4096), 2));
      for (Chunk chunk : given) pool.give(key(4096), chunk, 3);
    });
    EXPECT_TRUE(pool.take(key(4096), 4)) << "also when that thread has ended";
    end(1);
  });
}

TEST_F(TieredPoolTest, WaitingChunksAreKeptFromBothTiers) {
  test::in_new_thread([&] {
    source.closed_gates = {5};
    const Chunk chunk = get(key(4096));
    pool.give_waiting(key(4096), chunk, {5}, 1);
    EXPECT_FALSE(pool.take(key(4096), 1));
    EXPECT_FALSE(pool.take_near(key(1), 1 << 20));
    EXPECT_EQ(pool.usage().bytes, 4096u);
    source.open_gate(5);
    EXPECT_EQ(pool.take(key(4096), 1), chunk);
    end(1);
  });
}

TEST_F(TieredPoolTest, BothTiersTogetherKeepTheCapAtEveryMoment) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  constexpr std::uint64_t kCap = 100'000;
  pool.set_limits({.bytes_max = kCap});
  test::in_new_thread([&] {
    std::mt19937 random(seed);
    std::uint64_t most = 0;
    for (int step = 0; step < 3000; ++step) {
      const PoolKey k = key(1 + random() % (random() % 50 ? 5000 : 200'000));
      give_new(1, k, static_cast<std::uint64_t>(step));
      ASSERT_LE(pool.usage().bytes, kCap) << "step " << step;
      most = std::max(most, pool.usage().bytes);
    }
    EXPECT_GT(most, kCap / 2) << "the cap is made use of";
    end();
  });
}

TEST_F(TieredPoolTest, ThreadsTogetherKeepTheCap) {
  constexpr std::uint64_t kCap = 100'000;
  pool.set_limits({.bytes_max = kCap});
  constexpr int kThreads = 4, kRounds = 30;
  std::uint64_t most = 0;
  std::barrier barrier(kThreads, [&]() noexcept { most = std::max(most, pool.usage().bytes); });
  std::vector<std::thread> threads;
  for (int id = 0; id < kThreads; ++id)
    threads.emplace_back([&, id] {
      std::mt19937 random(static_cast<unsigned>(id));
      for (int round = 0; round < kRounds; ++round) {
        for (int i = 0; i < 100; ++i) {
          const PoolKey k = key(512 * (1 + random() % 8));
          pool.give(k, source.acquire({k.bytes}).chunk, 1);
        }
        barrier.arrive_and_wait();
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_LE(most, kCap);
  EXPECT_GT(most, kCap / 2);
  end();
}

TEST_F(TieredPoolTest, AChunkLargerThanTheCapIsReleasedAtOnce) {
  test::in_new_thread([&] {
    pool.set_limits({.bytes_max = 1000});
    give_new(1, key(1001));
    EXPECT_EQ(source.out(), 0u);
    EXPECT_EQ(pool.usage().blocks, 0u);
  });
}

// --- Trims

TEST_F(TieredPoolTest, TrimReleasesTheOldestOfTheSharedTierFirst) {
  test::in_new_thread([&] {
    // Too large for thread caches.
    const PoolKey k = key(2 << 20);
    std::vector<Chunk> chunks;
    for (std::uint64_t now = 1; now <= 5; ++now) chunks.push_back(give_new(1, k, now)[0]);
    EXPECT_EQ(pool.trim({.keep_bytes = 2 * k.bytes, .unused_for_ns = 0}, 10), 3 * k.bytes);
    EXPECT_EQ(std::set<Chunk>(source.released_in_order.begin(), source.released_in_order.end()),
              std::set<Chunk>(chunks.begin(), chunks.begin() + 3));
    end();
  });
}

TEST_F(TieredPoolTest, TrimSparesWhatWasUsedLatelyInBothTiers) {
  test::in_new_thread([&] {
    give_new(6, key(64), 10);
    give_new(6, key(128), 100);
    EXPECT_EQ(pool.trim({.keep_bytes = 0, .unused_for_ns = 50}, 120), 6u * 64);
    EXPECT_EQ(pool.usage().bytes, 6u * 128);
    end();
  });
}

TEST_F(TieredPoolTest, TrimLeavesWhatItWasToldToKeep) {
  test::in_new_thread([&] {
    give_new(4, key(100));
    give_new(4, key(50));
    ASSERT_EQ(pool.usage().bytes, 600u);
    EXPECT_LE(pool.trim({.keep_bytes = 550, .unused_for_ns = 0}, 10), 100u);
    EXPECT_LE(pool.usage().bytes, 550u);
    EXPECT_GE(pool.usage().bytes, 450u) << "no more goes than is needed to come down to what is kept";
    EXPECT_EQ(pool.trim({.keep_bytes = 550, .unused_for_ns = 0}, 10), 0u);
    end();
  });
}

constexpr std::uint64_t kMiB = 1 << 20;

TEST_F(TieredPoolTest, WhatIsGivenUpIsTheFewestThatMakeUpForTheBytes) {
  test::in_new_thread([&] {
    const Chunk small = give_new(1, key(2 * kMiB))[0], large = give_new(1, key(40 * kMiB))[0];
    const Chunk other_group = give_new(1, key(90 * kMiB, 2))[0], other_traits = give_new(1, key(90 * kMiB, 1, 7))[0];
    const PoolUsage gone = pool.give_up(key(0), 30 * kMiB);
    EXPECT_EQ(gone.blocks, 1u);
    EXPECT_EQ(gone.bytes, 40 * kMiB);
    EXPECT_EQ(source.released_in_order, std::vector<Chunk>{large});
    EXPECT_EQ(pool.take(key(2 * kMiB), 2), small);
    EXPECT_EQ(pool.take(key(90 * kMiB, 2), 2), other_group);
    EXPECT_EQ(pool.take(key(90 * kMiB, 1, 7), 2), other_traits);
    end(3);
  });
}

TEST_F(TieredPoolTest, ALittleIsNotMadeUpForByALargeOne) {
  test::in_new_thread([&] {
    const Chunk large = give_new(1, key(100 * kMiB))[0], fitting = give_new(1, key(4 * kMiB))[0];
    for (int i = 0; i < 5; ++i) {
      ASSERT_EQ(pool.take(key(100 * kMiB), 2), large);
      pool.give(key(100 * kMiB), large, 2);
    }
    pool.give_up(key(0), 3 * kMiB);
    EXPECT_EQ(source.released_in_order, std::vector<Chunk>{fitting});
    end();
  });
}

// Whichever side of the key in the order of sizes they lie.
TEST_F(TieredPoolTest, NothingOfAnotherGroupOrOtherTraitsIsGivenUp) {
  test::in_new_thread([&] {
    for (const PoolKey& other :
         {key(90 * kMiB, 4, 5), key(90 * kMiB, 6, 5), key(90 * kMiB, 5, 4), key(90 * kMiB, 5, 6)})
      give_new(1, other);
    const Chunk chunk = give_new(1, key(2 * kMiB, 5, 5))[0];
    EXPECT_EQ(pool.give_up(key(0, 5, 5), 200 * kMiB).blocks, 1u);
    EXPECT_EQ(source.released_in_order, std::vector<Chunk>{chunk});
    end();
  });
}

// Groups and traits on either side of each other; in thread caches too.
TEST_F(TieredPoolTest, OfEveryGroupAndTraitsThatGoesTheBestAreGivenUp) {
  test::in_new_thread([&] {
    const Chunk largest = give_new(1, key(40 * kMiB, 4, 7))[0], stays = give_new(1, key(90 * kMiB, 5, 5))[0];
    const Chunk old = give_new(1, key(4 * kMiB, 6, 1))[0], cached = give_new(1, key(kMiB, 4, 9))[0];
    give_new(1, key(3 * kMiB, 6, 2));
    const auto goes = [](const PoolKey& of) { return of.group != 5; };
    EXPECT_EQ(pool.give_up_those(goes, 30 * kMiB).bytes, 40 * kMiB);
    EXPECT_EQ(source.released_in_order, std::vector<Chunk>{largest});
    EXPECT_EQ(pool.give_up_those(goes, 3 * kMiB + 1).blocks, 1u);
    EXPECT_EQ(source.released_in_order.back(), old);
    EXPECT_EQ(pool.give_up_those(goes, 200 * kMiB).bytes, 4 * kMiB);
    EXPECT_EQ(source.released_in_order.back(), cached);
    EXPECT_EQ(pool.take(key(90 * kMiB, 5, 5), 2), stays);
    end(1);
  });
}

TEST_F(TieredPoolTest, AmongAlikeTheOldestIsGivenUp) {
  test::in_new_thread([&] {
    const std::vector<Chunk> alike = give_new(3, key(4 * kMiB));
    pool.give_up(key(0), 5 * kMiB);
    EXPECT_EQ(source.released_in_order, std::vector<Chunk>(alike.begin(), alike.begin() + 2));
    // One that is not used goes before a larger one that was used just now.
    const Chunk used = give_new(1, key(6 * kMiB))[0];
    for (int i = 0; i < 20; ++i) {
      ASSERT_EQ(pool.take(key(6 * kMiB), 2), used);
      pool.give(key(6 * kMiB), used, 2);
    }
    pool.give_up(key(0), 1);
    EXPECT_EQ(source.released_in_order.back(), alike[2]);
    end();
  });
}

TEST_F(TieredPoolTest, NoneThatWaitsIsGivenUp) {
  test::in_new_thread([&] {
    give_new(5, key(4 * kMiB));
    source.closed_gates.insert(1);
    pool.give_waiting(key(50 * kMiB), get(key(50 * kMiB)), SlowSource::Fence{1}, 1);
    EXPECT_EQ(pool.give_up(key(0), 100 * kMiB).bytes, 20 * kMiB);
    EXPECT_EQ(source.releases, 5);
    EXPECT_EQ(pool.usage().bytes, 50 * kMiB);
    source.open_gate(1);
    end();
  });
}

TEST_F(TieredPoolTest, ThreadCachesGiveUpLast) {
  test::in_new_thread([&] {
    give_new(3, key(kMiB));
    test::in_new_thread([&] { give_new(1, key(4 * kMiB)); });
    EXPECT_EQ(pool.give_up(key(0), 4 * kMiB).blocks, 1u);
    EXPECT_EQ(pool.usage().bytes, 3 * kMiB);
    EXPECT_EQ(pool.give_up(key(0, 2), 4 * kMiB).blocks, 0u);
    EXPECT_EQ(pool.give_up(key(0), 2 * kMiB).blocks, 2u);
    EXPECT_EQ(pool.usage().bytes, kMiB);
    end();
  });
}

// Clocks are read before locks are taken: a chunk may be given at a later time than that of the trim that meets it.
TEST_F(TieredPoolTest, ATrimThatComesLateSparesWhatIsYoungerThanItself) {
  test::in_new_thread([&] {
    give_new(6, key(64), 200);
    give_new(1, key(2 << 20), 200);
    EXPECT_EQ(pool.trim({.keep_bytes = 0, .unused_for_ns = 50}, 190), 0u);
    EXPECT_EQ(pool.usage().blocks, 7u);
    end();
  });
}

TEST_F(TieredPoolTest, WhatIsUnusedForTheIntervalGoesAtTheNextCall) {
  test::in_new_thread([&] {
    pool.set_limits({.bytes_max = 1 << 20, .bytes_min = 150, .interval_ns = 1000});
    give_new(6, key(100), 5000);
    EXPECT_FALSE(pool.take(key(1), 5900));
    EXPECT_EQ(source.releases, 0);
    EXPECT_FALSE(pool.take(key(1), 6500));
    EXPECT_LE(pool.usage().bytes, 150u);
    EXPECT_GE(pool.usage().bytes, 100u) << "the least that trims leave";
    end();
  });
}

TEST_F(TieredPoolTest, AnIntervalPassesOncePerIntervalAlsoForThreadsWithOlderClocks) {
  test::in_new_thread([&] {
    pool.set_limits({.bytes_max = 1 << 20, .interval_ns = 1000});
    EXPECT_FALSE(pool.take(key(1), 10'000));
    give_new(6, key(100), 10'500);
    EXPECT_FALSE(pool.take(key(1), 9'999)) << "a thread that read the clock before the last trim";
    EXPECT_FALSE(pool.take(key(1), 10'600));
    EXPECT_EQ(pool.usage().blocks, 6u);
    end();
  });
}

// --- Groups that go

TEST_F(TieredPoolTest, TakeOutEmptiesOneGroupInBothTiersAndAllThreads) {
  test::in_new_thread([&] {
    std::vector<Chunk> expected = give_new(6, key(64, 1));
    const std::vector<Chunk> others = give_new(6, key(64, 2));
    std::thread holder([&] {
      for (Chunk chunk : give_new(6, key(128, 1))) expected.push_back(chunk);
    });
    holder.join();
    source.closed_gates = {5};
    expected.push_back(get(key(256, 1)));
    pool.give_waiting(key(256, 1), expected.back(), {5}, 1);
    std::vector<Chunk> taken;
    pool.take_out(1, [&](const PoolKey& k, Chunk chunk, bool) {
      EXPECT_EQ(k.group, 1u);
      taken.push_back(chunk);
    });
    std::sort(taken.begin(), taken.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(taken, expected);
    EXPECT_EQ(source.releases, 0) << "what becomes of them is the visitor's to say";
    EXPECT_EQ(pool.usage().blocks, others.size());
    EXPECT_FALSE(pool.take(key(64, 1), 1));
    EXPECT_TRUE(pool.take(key(64, 2), 1));
    end(1 + expected.size());
  });
}

// The group is a context that is about to be destroyed: no other thread may still be giving its chunks to the driver.
void take_out_waits_for_a_trim(SlowSource& source, Pool& pool, std::uint64_t bytes) {
  const PoolKey k = key(bytes);
  test::in_new_thread([&] { pool.give(k, source.acquire({k.bytes}).chunk, 1); });
  source.hold_up = true;
  std::thread trimmer([&] { pool.trim({.keep_bytes = 0, .unused_for_ns = 0}, 2); });
  while (!source.releasing) std::this_thread::yield();
  std::atomic<bool> taken_out{false};
  std::thread taker([&] {
    pool.take_out(1, [](const PoolKey&, Chunk, bool) {});
    taken_out = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(taken_out) << "returned while another thread was releasing a chunk of the group";
  source.hold_up = false;
  trimmer.join();
  taker.join();
  EXPECT_EQ(source.out(), 0u);
}
TEST_F(TieredPoolTest, TakeOutWaitsForReleasesFromTheSharedTier) { take_out_waits_for_a_trim(source, pool, 2 << 20); }
TEST_F(TieredPoolTest, TakeOutWaitsForReleasesFromThreadCaches) { take_out_waits_for_a_trim(source, pool, 64); }

TEST_F(TieredPoolTest, TheChildOfAForkForgetsBothTiers) {
  test::in_new_thread([&] {
    give_new(6, key(64));
    pool.before_fork();
    pool.after_fork_in_child();
    EXPECT_EQ(source.releases, 0);
    EXPECT_EQ(pool.usage().blocks, 0u);
    EXPECT_FALSE(pool.take(key(64), 1));
    give_new(6, key(64));
    EXPECT_EQ(pool.usage().blocks, 6u);
    end(6);
  });
}

// --- Failures: the caller asks the pool, then the source, then trims and asks once more, as the hooks do.

struct Held {
  PoolKey key;
  Chunk chunk;
};

int scenario(SlowSource& source, Pool& pool) {
  std::vector<Held> held;
  int failures = 0;
  for (std::uint64_t step = 0; step < 200; ++step) {
    const PoolKey k = key(64u << (step % 5), 1 + step % 2);
    Acquired<Chunk, int> got{pool.take(k, step).value_or(0), 0, true};
    if (!got.chunk) got = source.acquire({k.bytes});
    if (!got.ok && source.out_of_memory(got.error) && pool.trim({.keep_bytes = 0, .unused_for_ns = 0}, step))
      got = source.acquire({k.bytes});
    got.ok ? held.push_back({k, got.chunk}) : void(++failures);
    if (step % 3 == 2 && !held.empty()) {
      const Held back = held.front();
      held.erase(held.begin());
      step % 2 ? pool.give(back.key, back.chunk, step)
               : pool.give_waiting(back.key, back.chunk, {static_cast<int>(step % 7)}, step);
    }
  }
  EXPECT_EQ(source.out(), held.size() + pool.usage().blocks);
  for (const Held& one : held) pool.give(one.key, one.chunk, 1000);
  for (std::uintptr_t group : {1, 2})
    pool.take_out(group, [&](const PoolKey&, Chunk chunk, bool) { source.release(chunk); });
  EXPECT_EQ(pool.usage().blocks, 0u);
  EXPECT_EQ(source.out(), 0u);
  EXPECT_EQ(source.wrong_releases, 0);
  return failures;
}

TEST(TieredPoolFailures, EveryAcquireFailingInTurnLeaksNothing) {
  const auto run = [](int fail_at, int with) {
    SlowSource source;
    source.fail_at = fail_at;
    source.fail_with = with;
    Pool pool(source);
    pool.set_limits({.bytes_max = 4096});
    int failures = 0;
    test::in_new_thread([&] { failures = scenario(source, pool); });
    EXPECT_LE(failures, fail_at ? 1 : 0) << "acquire " << fail_at << " answering " << with;
    return source.acquires;
  };
  const int acquires = run(0, 0);
  ASSERT_GT(acquires, 20);
  for (int with : {FakeSource::kOutOfMemory, FakeSource::kOtherError})
    for (int n = 1; n <= acquires; ++n) run(n, with);
}

// --- Threads allocate, pass chunks to each other and free; contexts go, trims come.

TEST(TieredPoolModel, NoChunkIsInTwoHandsAndEachIsReleasedOnce) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  constexpr std::uint64_t kCap = 60'000;
  SlowSource source;
  source.closed_gates = {1};
  Pool pool(source);
  pool.set_limits({.bytes_max = kCap, .bytes_min = 1000, .interval_ns = 300});
  std::mutex mutex;
  std::set<Chunk> owned, gated;
  std::vector<Held> passed;  // from thread to thread: what one allocated another frees
  std::atomic<std::uint64_t> clock{1};
  std::atomic<int> errors{0};
  const auto mine = [&](Chunk chunk) {
    std::lock_guard hold(mutex);
    if (!owned.insert(chunk).second || gated.count(chunk)) ++errors;
  };
  const auto work = [&](int id) {
    std::mt19937 random(seed + static_cast<unsigned>(id));
    std::vector<Held> held;
    const auto allocate = [&](std::uint64_t now) {
      const PoolKey k = key(100 * (1 + random() % 12), 1 + random() % 3, random() % 2);
      std::optional<Chunk> chunk = pool.take(k, now);
      if (!chunk) chunk = source.acquire({k.bytes}).chunk;
      mine(*chunk);
      held.push_back({k, *chunk});
    };
    const auto free_one = [&](std::uint64_t now) {
      const Held back = held.back();
      held.pop_back();
      const bool wait = random() % 4 == 0, closed = wait && random() % 4 == 0;
      {
        std::lock_guard hold(mutex);
        owned.erase(back.chunk);
        if (closed) gated.insert(back.chunk);
      }
      wait ? pool.give_waiting(back.key, back.chunk, {closed ? 1 : 2}, now) : pool.give(back.key, back.chunk, now);
    };
    for (int step = 0; step < 5000; ++step) {
      const std::uint64_t now = clock.fetch_add(1);
      const unsigned what = random() % 1000;
      if (what < 490 || held.empty())
        allocate(now);
      else if (what < 980)
        free_one(now);
      else if (what < 990) {
        std::lock_guard hold(mutex);
        std::swap(held.back(), passed[random() % passed.size()]);
      } else if (what < 995)
        pool.trim({.keep_bytes = random() % 5000, .unused_for_ns = random() % 200}, now);
      else
        pool.take_out(1 + random() % 3, [&](const PoolKey&, Chunk chunk, bool) {
          {
            std::lock_guard hold(mutex);
            if (owned.count(chunk)) ++errors;
            gated.erase(chunk);
          }
          source.release(chunk);
        });
      std::shuffle(held.begin(), held.end(), random);
    }
    while (!held.empty()) free_one(clock);
  };
  for (int i = 0; i < 20; ++i) {
    passed.push_back({key(100), source.acquire({100}).chunk});
    mine(passed.back().chunk);
  }
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; ++id) threads.emplace_back(work, id);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(errors, 0);
  EXPECT_EQ(owned.size(), passed.size());
  EXPECT_LE(pool.usage().bytes, kCap);
  for (const Held& one : passed) source.release(one.chunk);
  EXPECT_EQ(source.out(), pool.usage().blocks) << "every chunk is in the pool or went back";
  for (std::uintptr_t group = 1; group <= 3; ++group)
    pool.take_out(group, [&](const PoolKey&, Chunk chunk, bool) { source.release(chunk); });
  EXPECT_EQ(pool.usage().blocks, 0u);
  EXPECT_EQ(source.out(), 0u);
  EXPECT_EQ(source.wrong_releases, 0) << "some chunk went back twice";
}

}  // namespace
}  // namespace cistern
