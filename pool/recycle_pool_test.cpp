// RecyclePool over a fake source: what may be given again and when, the cap, time, drains, failures, and a model.
#include "pool/recycle_pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "tests/support/fake_source.hpp"

namespace cistern {
namespace {

using test::FakeSource;
using Pool = RecyclePool<FakeSource>;

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr PoolLimits kRoomy{.bytes_max = 1 << 30, .bytes_min = 0, .interval_ns = 0};

PoolKey key(std::uint64_t bytes, std::uintptr_t group = 1, std::uint64_t traits = 0) { return {group, traits, bytes}; }

class RecyclePoolTest : public testing::Test {
 protected:
  RecyclePoolTest() { pool.set_limits(kRoomy); }
  FakeSource::Chunk get(PoolKey k, std::uint64_t now = 1) {
    auto allocated = pool.allocate(k, {k.bytes}, now);
    EXPECT_TRUE(allocated.result.ok);
    return allocated.result.chunk;
  }
  void give(PoolKey k, FakeSource::Chunk chunk, std::uint64_t now = 1) { pool.give(k, chunk, {}, false, now); }
  void give_behind(int gate, PoolKey k, FakeSource::Chunk chunk, std::uint64_t now = 1) {
    pool.give(k, chunk, {gate}, true, now);
  }

  FakeSource source;
  Pool pool{source};
};

TEST_F(RecyclePoolTest, GivesTheSameChunkAgainForTheSameKey) {
  auto chunk = get(key(4096));
  give(key(4096), chunk);
  auto again = pool.allocate(key(4096), {4096}, 1);
  EXPECT_TRUE(again.hit);
  EXPECT_EQ(again.result.chunk, chunk);
  EXPECT_EQ(source.acquires, 1);
}

TEST_F(RecyclePoolTest, KeysDifferInEveryPart) {
  give(key(4096, 1, 0), get(key(4096, 1, 0)));
  EXPECT_FALSE(pool.take(key(4097, 1, 0), 1));
  EXPECT_FALSE(pool.take(key(4096, 2, 0), 1));
  EXPECT_FALSE(pool.take(key(4096, 1, 1), 1));
  EXPECT_TRUE(pool.take(key(4096, 1, 0), 1));
}

TEST_F(RecyclePoolTest, NewestFirst) {
  auto a = get(key(64)), b = get(key(64));
  give(key(64), a, 1);
  give(key(64), b, 2);
  EXPECT_EQ(pool.take(key(64), 3), b);
  EXPECT_EQ(pool.take(key(64), 3), a);
}

TEST_F(RecyclePoolTest, OverTheCapTheOldestGoesFirst) {
  pool.set_limits({.bytes_max = 300});
  auto a = get(key(100)), b = get(key(150)), c = get(key(100));
  give(key(100), a, 1);
  give(key(150), b, 2);
  give(key(100), c, 3);
  ASSERT_EQ(source.released_in_order.size(), 1u);
  EXPECT_EQ(source.released_in_order[0], a);
  EXPECT_EQ(pool.usage().bytes, 250u);
  EXPECT_EQ(pool.usage().largest_bytes, 150u);
}

TEST_F(RecyclePoolTest, AChunkLargerThanTheCapIsNotKept) {
  pool.set_limits({.bytes_max = 50});
  give(key(100), get(key(100)));
  EXPECT_EQ(source.out(), 0u);
  EXPECT_EQ(pool.usage().blocks, 0u);
}

TEST_F(RecyclePoolTest, AChunkLargerThanTheCapPushesOutNoOther) {
  pool.set_limits({.bytes_max = 100});
  give(key(60), get(key(60)), 1);
  source.closed_gates = {1};
  give(key(101), get(key(101)), 2);
  give_behind(1, key(101), get(key(101)), 2);
  EXPECT_EQ(source.out(), 1u);
  EXPECT_EQ(pool.usage().bytes, 60u);
  EXPECT_EQ(pool.waiting_bytes(), 0u);
  EXPECT_TRUE(pool.take(key(60), 3));
  pool.drain(1);
}

TEST_F(RecyclePoolTest, UnusedForTheIntervalGoesBackButTheMinimumStays) {
  pool.set_limits({.bytes_max = 1 << 20, .bytes_min = 100, .interval_ns = 10 * kSecond});
  auto a = get(key(100), kSecond), b = get(key(100), kSecond);
  give(key(100), a, kSecond);
  give(key(100), b, 2 * kSecond);
  EXPECT_FALSE(pool.take(key(1), 5 * kSecond));
  EXPECT_EQ(source.releases, 0);
  EXPECT_FALSE(pool.take(key(1), 30 * kSecond));
  EXPECT_EQ(source.released_in_order, std::vector<FakeSource::Chunk>{a});
}

TEST_F(RecyclePoolTest, TrimSparesWhatWasUsedLately) {
  auto a = get(key(10)), b = get(key(10));
  give(key(10), a, 1 * kSecond);
  give(key(10), b, 9 * kSecond);
  EXPECT_EQ(pool.trim({.keep_bytes = 0, .unused_for_ns = 5 * kSecond}, 10 * kSecond), 10u);
  EXPECT_EQ(source.released_in_order, std::vector<FakeSource::Chunk>{a});
}

TEST_F(RecyclePoolTest, ATrimOfWhatHasSettledLeavesWhatWaits) {
  source.closed_gates = {7};
  auto settled = get(key(64)), waiting = get(key(64));
  give_behind(7, key(64), waiting, 1);
  give(key(64), settled, 2);
  EXPECT_EQ(pool.trim({.keep_bytes = 0, .unused_for_ns = 0, .settled_only = true}, 3), 64u);
  EXPECT_EQ(source.released_in_order, std::vector<FakeSource::Chunk>{settled});
  EXPECT_EQ(pool.trim({.keep_bytes = 0, .unused_for_ns = 0}, 3), 64u);
}

TEST_F(RecyclePoolTest, QuarantineHoldsUntilTheFenceSettled) {
  source.closed_gates = {7};
  auto chunk = get(key(64));
  give_behind(7, key(64), chunk);
  EXPECT_FALSE(pool.take(key(64), 1));
  EXPECT_EQ(pool.usage().bytes, 64u) << "quarantined memory is pooled memory";
  EXPECT_EQ(pool.waiting_bytes(), 64u);
  source.open_gate(7);
  EXPECT_EQ(pool.take(key(64), 1), chunk);
  EXPECT_EQ(pool.waiting_bytes(), 0u);
}

TEST_F(RecyclePoolTest, WhatSettlesMovesToItsBinWhenThatIsAskedFor) {
  source.closed_gates = {7, 8};
  Vector<FakeSource::Chunk> chunks;
  for (int i = 0; i < 50; ++i) chunks.push_back(get(key(64)));
  auto later = get(key(32));
  for (auto chunk : chunks) give_behind(7, key(64), chunk);
  give_behind(8, key(32), later);
  pool.settle(1);
  EXPECT_EQ(pool.waiting_bytes(), 50 * 64u + 32u);
  source.open_gate(7);
  pool.settle(2);
  EXPECT_EQ(pool.waiting_bytes(), 50 * 64u + 32u) << "of another group";
  pool.settle(1);
  Vector<FakeSource::Chunk> waiting;
  pool.for_each_waiting([&](FakeSource::Chunk chunk) { waiting.push_back(chunk); });
  EXPECT_EQ(waiting, Vector<FakeSource::Chunk>{later});
  EXPECT_EQ(pool.trim({.keep_bytes = 0, .unused_for_ns = 0, .settled_only = true}, 3), 50 * 64u);
  pool.drain(1);
}

TEST_F(RecyclePoolTest, OneClosedGateDoesNotHideOthers) {
  source.closed_gates = {1, 2};
  for (int i = 0; i < 20; ++i) give_behind(1, key(64), get(key(64)));
  auto open = get(key(64));
  give_behind(2, key(64), open);
  EXPECT_FALSE(pool.take(key(64), 1));
  source.open_gate(2);
  std::optional<FakeSource::Chunk> taken;
  for (int look = 0; look < 100 && !taken; ++look) taken = pool.take(key(64), 1);
  EXPECT_EQ(taken, open);
}

TEST_F(RecyclePoolTest, WhatHasSettledWhenItIsGivenDoesNotWait) {
  auto chunk = get(key(64));
  give_behind(2, key(64), chunk);
  EXPECT_EQ(pool.take(key(64), 1), chunk);
}

TEST_F(RecyclePoolTest, ChunksThatSettleInOrderAreAllFoundAtOnce) {
  source.closed_gates = {1};
  std::set<FakeSource::Chunk> given;
  for (int i = 0; i < 8; ++i) {
    auto chunk = get(key(64));
    given.insert(chunk);
    give_behind(1, key(64), chunk);
  }
  source.open_gate(1);
  for (int i = 0; i < 8; ++i) given.erase(pool.take(key(64), 1).value_or(0));
  EXPECT_TRUE(given.empty());
}

TEST_F(RecyclePoolTest, AFenceThatCannotSettleReleases) {
  auto chunk = get(key(64));
  give_behind(FakeSource::kNever, key(64), chunk);
  EXPECT_FALSE(pool.take(key(64), 1));
  EXPECT_EQ(source.released_in_order, std::vector<FakeSource::Chunk>{chunk});
}

TEST_F(RecyclePoolTest, QuarantineCountsAgainstTheCap) {
  source.closed_gates = {1};
  pool.set_limits({.bytes_max = 100});
  auto a = get(key(64)), b = get(key(64));
  give_behind(1, key(64), a, 1);
  give_behind(1, key(64), b, 2);
  EXPECT_EQ(source.released_in_order, std::vector<FakeSource::Chunk>{a});
}

TEST_F(RecyclePoolTest, DrainReleasesOneGroupOnly) {
  give(key(64, 1), get(key(64, 1)));
  give(key(64, 2), get(key(64, 2)));
  give_behind(FakeSource::kNever, key(32, 1), get(key(32, 1)));
  pool.drain(1);
  EXPECT_EQ(source.out(), 1u);
  EXPECT_TRUE(pool.take(key(64, 2), 1));
  pool.drain(99);
}

TEST_F(RecyclePoolTest, TakeOutLeavesTheChunksOfAGroupToTheVisitor) {
  source.closed_gates = {7};
  std::map<FakeSource::Chunk, std::uint64_t> expected;
  for (std::uint64_t bytes : {64, 64, 128}) expected[get(key(bytes))] = bytes;
  for (auto& [chunk, bytes] : expected) give(key(bytes), chunk);
  auto waiting = get(key(256));
  expected[waiting] = 256;
  give_behind(7, key(256), waiting);
  give(key(64, 2), get(key(64, 2)));
  std::map<FakeSource::Chunk, std::uint64_t> taken;
  pool.take_out(1, [&](const PoolKey& k, FakeSource::Chunk chunk, bool) {
    EXPECT_EQ(k.group, 1u);
    taken[chunk] = k.bytes;
    EXPECT_FALSE(pool.take(key(1, 3), 1)) << "the visitor may use the pool: its lock is free";
  });
  EXPECT_EQ(taken, expected);
  EXPECT_EQ(source.releases, 0);
  EXPECT_EQ(pool.usage().blocks, 1u);
  EXPECT_EQ(pool.waiting_bytes(), 0u);
  pool.take_out(1, [](const PoolKey&, FakeSource::Chunk, bool) { ADD_FAILURE() << "taken out twice"; });
  for (auto& [chunk, bytes] : taken) give(key(bytes), chunk);
  EXPECT_EQ(pool.usage().blocks, 5u) << "and the group begins anew";
}

TEST_F(RecyclePoolTest, NearIsTheSmallestThatSufficesOfTheSameGroupAndTraits) {
  for (std::uint64_t bytes : {100, 200, 400}) give(key(bytes), get(key(bytes)));
  give(key(150, 2), get(key(150, 2)));
  give(key(150, 1, 1), get(key(150, 1, 1)));
  EXPECT_FALSE(pool.take_near(key(401), 1000));
  EXPECT_FALSE(pool.take_near(key(101), 199));
  EXPECT_TRUE(pool.take_near(key(101), 200));
  EXPECT_FALSE(pool.take_near(key(101), 200));
  EXPECT_TRUE(pool.take_near(key(100), 100));
  EXPECT_TRUE(pool.take_near(key(1), 1000)) << "the 400 is left";
  EXPECT_FALSE(pool.take_near(key(1), 1000));
  EXPECT_EQ(pool.usage().blocks, 2u);
}

TEST_F(RecyclePoolTest, NearPassesOverWhatWaitsOrIsGone) {
  source.closed_gates = {7};
  give_behind(7, key(100), get(key(100)));
  EXPECT_FALSE(pool.take_near(key(1), 1000));
  auto large = get(key(200));
  give(key(200), large);
  EXPECT_EQ(pool.take_near(key(1), 1000), large);
  source.open_gate(7);
  EXPECT_FALSE(pool.take(key(1), 1)) << "this looks at the quarantine";
  EXPECT_TRUE(pool.take_near(key(1), 1000));
  give(key(100), get(key(100)));
  pool.trim({.keep_bytes = 0, .unused_for_ns = 0}, 1);
  EXPECT_FALSE(pool.take_near(key(1), 1000));
  give(key(100), get(key(100)));
  pool.drain(1);
  EXPECT_FALSE(pool.take_near(key(1), 1000));
}

TEST_F(RecyclePoolTest, EverNewSizesLeaveNothingBehind) {
  std::size_t before = 0;
  for (std::uint64_t bytes = 1; bytes <= 60'000; ++bytes) {
    give(key(bytes), get(key(bytes)));
    ASSERT_TRUE(pool.take(key(bytes), 1));
    if (bytes == 10'000) before = internal_mapped_bytes();
  }
  EXPECT_LE(internal_mapped_bytes(), before + 256 * 1024);
}

TEST_F(RecyclePoolTest, ATrimThatComesLateSparesWhatIsYoungerThanItself) {
  give(key(10), get(key(10)), 200);
  EXPECT_EQ(pool.trim({.keep_bytes = 0, .unused_for_ns = 50}, 190), 0u);
  EXPECT_EQ(pool.usage().blocks, 1u);
}

TEST_F(RecyclePoolTest, OutOfMemoryReleasesAllAndAsksOnceMore) {
  source.limit_bytes = 100;
  give(key(60), get(key(60)));
  auto second = pool.allocate(key(80), {80}, 1);
  EXPECT_TRUE(second.result.ok);
  EXPECT_FALSE(second.hit);
  EXPECT_EQ(source.acquires, 3);
  auto third = pool.allocate(key(90), {90}, 1);
  EXPECT_FALSE(third.result.ok);
  EXPECT_EQ(third.result.error, FakeSource::kOutOfMemory);
  EXPECT_EQ(source.acquires, 4) << "nothing kept: no second try";
}

TEST_F(RecyclePoolTest, WhoWaitsForReleasesWaitsForASlowOneThoughOthersEndMeanwhile) {
  auto quick = get(key(40));
  give(key(100), get(key(100)));
  const Trim all{.keep_bytes = 0, .unused_for_ns = 0};
  std::atomic<bool> is_slow{false}, go_on{false}, waits{false}, waited{false};
  source.on_release = [&] {
    if (is_slow.exchange(true)) return;
    while (!go_on) std::this_thread::yield();
  };
  std::thread slow([&] { pool.trim(all, 1); });
  while (!is_slow) std::this_thread::yield();
  std::thread waiter([&] {
    waits = true;
    EXPECT_TRUE(pool.wait_for_releases());
    waited = true;
  });
  while (!waits) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  give(key(40), quick);
  pool.trim(all, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(waited);
  go_on = true;
  slow.join();
  waiter.join();
  EXPECT_FALSE(pool.wait_for_releases());
  EXPECT_EQ(source.out(), 0u);
}

// Room for one chunk, which lies in the pool while another thread has it in hand: it is on its way out of there when
// the request comes, and waits for the request to have failed once.
class RecyclePoolShortOfMemory : public RecyclePoolTest {
 protected:
  RecyclePoolShortOfMemory() {
    source.limit_bytes = 100;
    give(key(100), get(key(100)));
  }
  void stop_here() {
    if (std::this_thread::get_id() == request || stopped.exchange(true)) return;
    while (!failed_once) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  // `other` stops in the source; then a request of another size is made.
  template <class Other>
  void request_while(Other other) {
    source.on_acquired = [this] { failed_once = true; };
    std::thread thread(other);
    while (!stopped) std::this_thread::yield();
    auto allocated = pool.allocate(key(60), {60}, 1);
    EXPECT_TRUE(allocated.result.ok);
    EXPECT_FALSE(allocated.hit);
    thread.join();
    EXPECT_EQ(source.out(), 1u);
    EXPECT_EQ(source.wrong_releases, 0);
  }
  const std::thread::id request = std::this_thread::get_id();
  std::atomic<bool> stopped{false}, failed_once{false};
};

TEST_F(RecyclePoolShortOfMemory, WaitsForWhatAnotherThreadIsReleasing) {
  source.on_release = [this] { stop_here(); };
  request_while([this] { pool.trim({.keep_bytes = 0, .unused_for_ns = 0}, 1); });
}

TEST_F(RecyclePoolShortOfMemory, WaitsForWhatAnotherThreadIsLookingAt) {
  source.closed_gates = {1};
  give_behind(1, key(100), *pool.take(key(100), 1));
  source.on_settled = [this] { stop_here(); };
  request_while([this] { EXPECT_FALSE(pool.take(key(1), 1)); });
}

TEST_F(RecyclePoolShortOfMemory, AsksAgainWhenMemoryCameFreeMeanwhile) {
  source.on_acquired = [this] {
    if (!failed_once.exchange(true))
      std::thread([this] { pool.trim({.keep_bytes = 0, .unused_for_ns = 0}, 1); }).join();
  };
  EXPECT_TRUE(pool.allocate(key(60), {60}, 1).result.ok);
  EXPECT_EQ(source.acquires, 3);
}

TEST_F(RecyclePoolShortOfMemory, KeepsNothingMeanwhile) {
  // Another program thread holds a chunk, and gives it back while the request waits for the first one.
  source.limit_bytes = 140;
  auto small = get(key(40));
  source.on_release = [&, this] {
    if (!stopped.exchange(true)) std::thread([&, this] { give(key(40), small); }).join();
  };
  EXPECT_TRUE(pool.allocate(key(140), {140}, 1).result.ok);
  EXPECT_EQ(pool.usage().blocks, 0u);
  // And afterwards it keeps again.
  source.on_release = nullptr;
  source.limit_bytes = 1000;
  give(key(40), get(key(40)));
  EXPECT_EQ(pool.usage().blocks, 1u);
}

TEST_F(RecyclePoolShortOfMemory, AsksOnceWhenThereWasNothingToGiveBack) {
  pool.drain(1);
  EXPECT_EQ(pool.allocate(key(101), {101}, 1).result.error, FakeSource::kOutOfMemory);
  EXPECT_EQ(source.acquires, 2);
}

TEST_F(RecyclePoolTest, OtherErrorsPassUnchangedAndKeepThePool) {
  give(key(60), get(key(60)));
  source.fail_at = 2;
  auto failed = pool.allocate(key(80), {80}, 1);
  EXPECT_FALSE(failed.result.ok);
  EXPECT_EQ(failed.result.error, FakeSource::kOtherError);
  EXPECT_EQ(pool.usage().blocks, 1u);
}

TEST_F(RecyclePoolTest, ChildOfAForkForgetsWithoutReleasing) {
  give(key(60), get(key(60)));
  pool.before_fork();
  pool.after_fork_in_child();
  EXPECT_EQ(source.releases, 0);
  EXPECT_EQ(pool.usage().blocks, 0u);
  EXPECT_FALSE(pool.take(key(60), 1));
}

// A scenario with hits, misses, quarantine and trims, in which the n-th acquire fails, for every n.
TEST(RecyclePoolFailures, EveryAcquireFailingInTurnLeaksNothing) {
  const auto scenario = [](FakeSource& source) {
    Pool pool(source);
    pool.set_limits({.bytes_max = 4096});
    std::vector<std::pair<PoolKey, FakeSource::Chunk>> held;
    int failures = 0;
    for (int step = 0; step < 200; ++step) {
      const PoolKey k = key(64u << (step % 5), 1 + step % 2);
      auto allocated = pool.allocate(k, {k.bytes}, static_cast<std::uint64_t>(step));
      if (allocated.result.ok)
        held.emplace_back(k, allocated.result.chunk);
      else
        ++failures;
      if (step % 3 == 2 && !held.empty()) {
        pool.give(held.front().first, held.front().second, {step % 7}, step % 2 == 0, static_cast<std::uint64_t>(step));
        held.erase(held.begin());
      }
    }
    EXPECT_EQ(source.out(), held.size() + pool.usage().blocks);
    for (auto& [k, chunk] : held) pool.give(k, chunk, {}, false, 1000);
    pool.drain(1);
    pool.drain(2);
    EXPECT_EQ(source.out(), 0u);
    EXPECT_EQ(source.wrong_releases, 0);
    return failures;
  };
  FakeSource counting;
  EXPECT_EQ(scenario(counting), 0);
  ASSERT_GT(counting.acquires, 20);
  for (int with : {FakeSource::kOutOfMemory, FakeSource::kOtherError})
    for (int n = 1; n <= counting.acquires; ++n) {
      FakeSource source;
      source.fail_at = n;
      source.fail_with = with;
      EXPECT_LE(scenario(source), 1) << "acquire " << n;
    }
}

// Threads take and give at random against a model: no chunk is ever in two hands, none behind a closed gate is given,
// none is lost.
template <class L>
void threads_never_share_a_chunk() {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  FakeSource source;
  source.closed_gates = {1};
  RecyclePool<FakeSource, L> pool(source);
  pool.set_limits({.bytes_max = 20'000, .bytes_min = 0, .interval_ns = 500});
  std::mutex mutex;
  std::map<FakeSource::Chunk, int> owner;
  std::set<FakeSource::Chunk> gated;
  std::atomic<std::uint64_t> clock{1};
  std::atomic<int> errors{0};
  const auto work = [&](int id) {
    std::mt19937 random(seed + static_cast<unsigned>(id));
    std::vector<std::pair<PoolKey, FakeSource::Chunk>> held;
    for (int step = 0; step < 3000; ++step) {
      const std::uint64_t now = clock.fetch_add(1);
      if (random() % 2 || held.empty()) {
        const PoolKey k = key(100 * (1 + random() % 6), 1 + random() % 3);
        auto allocated = pool.allocate(k, {k.bytes}, now);
        if (!allocated.result.ok) continue;
        std::lock_guard hold(mutex);
        if (!owner.emplace(allocated.result.chunk, id).second) ++errors;
        if (gated.count(allocated.result.chunk)) ++errors;
        held.emplace_back(k, allocated.result.chunk);
      } else {
        auto [k, chunk] = held.back();
        held.pop_back();
        const int gate = random() % 10 == 0 ? 1 : 2;
        {
          std::lock_guard hold(mutex);
          owner.erase(chunk);
          if (gate == 1) gated.insert(chunk);
        }
        pool.give(k, chunk, {gate}, random() % 2 || gate == 1, now);
      }
      if (random() % 500 == 0) pool.drain(1 + random() % 3);
      if (random() % 500 == 0) pool.trim({.keep_bytes = 1000, .unused_for_ns = 100}, now);
    }
    for (auto& [k, chunk] : held) {
      {
        std::lock_guard hold(mutex);
        owner.erase(chunk);
      }
      pool.give(k, chunk, {}, false, clock);
    }
  };
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; ++id) threads.emplace_back(work, id);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(errors, 0);
  EXPECT_TRUE(owner.empty());
  EXPECT_EQ(source.out(), pool.usage().blocks);
  EXPECT_LE(pool.usage().bytes, 20'000u);
  for (std::uintptr_t group = 1; group <= 3; ++group) pool.drain(group);
  EXPECT_EQ(pool.waiting_bytes(), 0u);
  EXPECT_EQ(source.out(), 0u);
  EXPECT_EQ(source.wrong_releases, 0);
}

TEST(RecyclePoolModel, ThreadsNeverShareAChunk) { threads_never_share_a_chunk<Lock>(); }

TEST(RecyclePoolModel, NorUnderASpinLock) { threads_never_share_a_chunk<SpinLock>(); }

TEST(RecyclePoolUnderASpinLock, ChildOfAForkForgetsAndGoesOn) {
  FakeSource source;
  RecyclePool<FakeSource, SpinLock> pool(source);
  pool.set_limits(kRoomy);
  pool.give(key(60), pool.allocate(key(60), {60}, 1).result.chunk, {}, false, 1);
  pool.before_fork();
  pool.after_fork_in_parent();
  EXPECT_EQ(pool.usage().blocks, 1u);
  pool.before_fork();
  pool.after_fork_in_child();
  EXPECT_EQ(pool.usage().blocks, 0u);
  EXPECT_EQ(source.releases, 0);
  const auto chunk = pool.allocate(key(60), {60}, 1).result.chunk;
  pool.give(key(60), chunk, {}, false, 1);
  EXPECT_EQ(pool.take(key(60), 1), chunk);
}

}  // namespace
}  // namespace cistern
