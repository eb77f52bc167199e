// Objects used again: what is made, reset, validated, kept and dropped; exceptions, threads, and leases that outlive
// their pool.
#include <gtest/gtest.h>
#include <cistern/object_pool.hpp>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/random.hpp"

namespace {

using cistern::failure, cistern::object_pool, cistern::object_pool_statistics, cistern::result;

// How many live, of all threads.
std::atomic<int> alive{0};

struct Costly {
  explicit Costly(int number_) : number(std::make_unique<int>(number_)) { ++alive; }
  Costly(Costly&& other) noexcept : number(std::move(other.number)), uses(other.uses) { ++alive; }
  Costly& operator=(Costly&&) = delete;
  ~Costly() { --alive; }

  std::unique_ptr<int> number;
  int uses = 0;
};

class ObjectPools : public testing::Test {
 protected:
  void SetUp() override { alive = 0; }
  void TearDown() override { EXPECT_EQ(alive, 0); }

  // Numbers them from 1 on.
  std::function<result<Costly>()> numbered() {
    return [this] { return Costly(++made); };
  }
  static void expect_sums(const object_pool_statistics& of) { EXPECT_EQ(of.created, of.dropped + of.in_use + of.kept); }

  int made = 0;
};

TEST_F(ObjectPools, UseObjectsAgain) {
  object_pool<Costly> pool({.create = numbered()});
  {
    auto one = pool.acquire().value();
    const auto other = pool.acquire().value();
    EXPECT_EQ(*one->number + *other->number, 3);
    EXPECT_EQ(pool.statistics().in_use, 2u);
    EXPECT_EQ(pool.statistics().hit_rate, 0);
  }
  for (int i = 0; i < 6; ++i) EXPECT_LE(*pool.acquire().value()->number, 2);
  const object_pool_statistics of = pool.statistics();
  EXPECT_EQ(of.created, 2u);
  EXPECT_EQ(of.reused, 6u);
  EXPECT_EQ(of.kept, 2u);
  EXPECT_EQ(of.in_use, 0u);
  EXPECT_EQ(of.dropped, 0u);
  EXPECT_EQ(of.hit_rate, 0.75);
}

TEST_F(ObjectPools, KeepTheLastUsedAndNoMoreThanTheyMay) {
  object_pool<Costly> pool({.create = numbered(), .objects_max = 2});
  {
    auto one = pool.acquire().value(), two = pool.acquire().value(), three = pool.acquire().value();
    one.give_back();
    EXPECT_FALSE(one);
    two.give_back();
    three.give_back();
  }
  EXPECT_EQ(pool.statistics().kept, 2u);
  EXPECT_EQ(pool.statistics().dropped, 1u);
  EXPECT_EQ(alive, 2);
  EXPECT_EQ(*pool.acquire().value()->number, 2);
  EXPECT_EQ(pool.trim(1), 1u);
  EXPECT_EQ(*pool.acquire().value()->number, 2) << "the one that was kept longest went";
  EXPECT_EQ(pool.trim(5), 0u);
  EXPECT_EQ(pool.clear(), 1u);
  EXPECT_EQ(alive, 0);
  expect_sums(pool.statistics());
}

TEST_F(ObjectPools, AskResetAndValidate) {
  bool resets = true;
  object_pool<Costly> pool({.create = numbered(),
                            .reset = [&](Costly& object) { return ++object.uses, resets; },
                            .validate = [](Costly& object) { return object.uses < 3; }});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(*pool.acquire().value()->number, 1);
  EXPECT_EQ(*pool.acquire().value()->number, 2) << "used up";
  resets = false;
  EXPECT_EQ(*pool.acquire().value()->number, 2);
  EXPECT_EQ(pool.statistics().kept, 0u) << "could not be reset";
  resets = true;
  pool.acquire().value().drop();
  EXPECT_EQ(pool.statistics().kept, 0u) << "broken";
  EXPECT_EQ(pool.statistics().dropped, 3u);
  expect_sums(pool.statistics());
}

TEST_F(ObjectPools, PassFailuresOn) {
  object_pool<Costly> none({.create = {}});
  EXPECT_EQ(none.acquire().status(), CISTERN_INVALID);
  object_pool<Costly> pool({.create = []() -> result<Costly> { return failure{CISTERN_NO_DRIVER, "connect", 100}; }});
  const auto it = pool.acquire();
  EXPECT_FALSE(it);
  EXPECT_EQ(it.status(), CISTERN_NO_DRIVER);
  EXPECT_STREQ(it.why().call, "connect");
  EXPECT_EQ(it.why().native, 100);
  EXPECT_EQ(pool.statistics().failed, 1u);
  expect_sums(pool.statistics());
}

TEST_F(ObjectPools, StayRightWhereCallbacksThrow) {
  enum Place { kNowhere, kCreate, kReset, kValidate } place = kNowhere;
  const auto maybe = [&](Place here) {
    if (place == here) throw std::runtime_error("as told");
    return true;
  };
  object_pool<Costly> pool({.create = [&] { return maybe(kCreate), Costly(++made); },
                            .reset = [&](Costly&) { return maybe(kReset); },
                            .validate = [&](Costly&) { return maybe(kValidate); }});
  place = kCreate;
  EXPECT_THROW(static_cast<void>(pool.acquire()), std::runtime_error);
  EXPECT_EQ(pool.statistics().failed, 1u);
  place = kReset;
  EXPECT_TRUE(pool.acquire());
  EXPECT_EQ(pool.statistics().dropped, 1u);
  place = kValidate;
  EXPECT_TRUE(pool.acquire());
  EXPECT_THROW(static_cast<void>(pool.acquire()), std::runtime_error);
  EXPECT_EQ(pool.statistics().dropped, 2u);
  EXPECT_EQ(pool.statistics().in_use, 0u);
  place = kNowhere;
  EXPECT_TRUE(pool.acquire());
  expect_sums(pool.statistics());
}

TEST_F(ObjectPools, AreOutlivedByLeases) {
  int resets = 0;
  object_pool<Costly>::lease late, other;
  {
    object_pool<Costly> pool({.create = numbered(), .reset = [&](Costly&) { return ++resets > 0; }});
    late = pool.acquire().value();
    pool.acquire().value().give_back();
    EXPECT_EQ(alive, 2);
  }
  EXPECT_EQ(alive, 1) << "what was kept has gone with the pool";
  EXPECT_EQ(*late->number, 1);
  other = std::move(late);
  EXPECT_EQ(late.get(), nullptr);
  other.give_back();
  EXPECT_EQ(alive, 0);
  EXPECT_EQ(resets, 1) << "not when the pool had gone";
}

TEST_F(ObjectPools, KeepNothingWhereTheyEndWhileOneIsReset) {
  std::optional<object_pool<Costly>> pool;
  pool.emplace(cistern::object_pool_settings<Costly>{.create = numbered(), .reset = [&](Costly&) {
                                                       pool.reset();
                                                       return true;
                                                     }});
  const auto held = pool->acquire().value();
  pool->acquire().value().give_back();
  EXPECT_EQ(alive, 1) << "the one that is held, and none that nobody could get";
}

TEST_F(ObjectPools, GiveBackWhatALeaseHadWhereAnotherIsMovedThere) {
  object_pool<Costly> pool({.create = numbered()});
  auto one = pool.acquire().value();
  one = pool.acquire().value();
  EXPECT_EQ(*one->number, 2);
  EXPECT_EQ(pool.statistics().kept, 1u);
}

TEST_F(ObjectPools, AreUsableInTheirCallbacks) {
  object_pool<Costly>* self = nullptr;
  object_pool<Costly> pool({.create = numbered(),
                            .reset = [&](Costly&) { return self->statistics().in_use > 0; },
                            .validate = [&](Costly&) { return self->trim(8) == 0; }});
  self = &pool;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(*pool.acquire().value()->number, 1);
}

// Against a model: the objects that are kept, in their order, and those that are out.
TEST_F(ObjectPools, DoAsAModelDoes) {
  const unsigned seed = cistern::test::new_seed();
  SCOPED_TRACE("CISTERN_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr std::size_t kMost = 6;
  bool resets = true;
  std::vector<int> kept, bad;  // bad: validate refuses them
  object_pool<Costly> pool(
      {.create = numbered(),
       .reset = [&](Costly&) { return resets; },
       .validate = [&](Costly& o) { return std::find(bad.begin(), bad.end(), *o.number) == bad.end(); },
       .objects_max = kMost});
  std::vector<object_pool<Costly>::lease> out;
  std::uint64_t created = 0, reused = 0, dropped = 0;
  for (int step = 0; step < 20000; ++step) {
    switch (random() % 8) {
      default: {
        if (out.size() >= 12) break;
        while (!kept.empty() && std::find(bad.begin(), bad.end(), kept.back()) != bad.end()) kept.pop_back(), ++dropped;
        const int expected = kept.empty() ? made + 1 : kept.back();
        kept.empty() ? ++created : ++reused;
        if (!kept.empty()) kept.pop_back();
        out.push_back(pool.acquire().value());
        ASSERT_EQ(*out.back()->number, expected);
        break;
      }
      case 0:
      case 1:
      case 2: {
        if (out.empty()) break;
        std::swap(out[random() % out.size()], out.back());
        resets = random() % 8 != 0;
        if (resets && kept.size() < kMost)
          kept.push_back(*out.back()->number);
        else
          ++dropped;
        out.pop_back();
        break;
      }
      case 3: {
        if (random() % 4) break;
        const std::size_t keep = random() % (kMost + 2), count = kept.size() - std::min(kept.size(), keep);
        ASSERT_EQ(pool.trim(keep), count);
        kept.erase(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(count));
        dropped += count;
        break;
      }
      case 4:
        if (!kept.empty() && bad.size() < 500) bad.push_back(kept[random() % kept.size()]);
    }
    const object_pool_statistics of = pool.statistics();
    ASSERT_EQ(of.created, created);
    ASSERT_EQ(of.reused, reused);
    ASSERT_EQ(of.dropped, dropped);
    ASSERT_EQ(of.kept, kept.size());
    ASSERT_EQ(of.in_use, out.size());
    expect_sums(of);
    ASSERT_EQ(static_cast<std::size_t>(alive), kept.size() + out.size());
  }
}

TEST_F(ObjectPools, ServeThreadsTogether) {
  std::atomic<int> number{0};
  object_pool<Costly> pool({.create = [&] { return Costly(++number); },
                            .reset = [](Costly& object) { return ++object.uses % 50 != 0; },
                            .validate = [](Costly& object) { return object.uses % 50 != 49; },
                            .objects_max = 3});
  std::atomic<bool> stop{false};
  std::thread trims([&] {
    while (!stop) {
      pool.trim(1);
      const object_pool_statistics of = pool.statistics();
      EXPECT_LE(of.kept, 3u);
      expect_sums(of);
    }
  });
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; ++id)
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) {
        const auto held = pool.acquire().value();
        *held->number += 1;  // nobody else has it
      }
    });
  for (std::thread& thread : threads) thread.join();
  stop = true;
  trims.join();
  const object_pool_statistics of = pool.statistics();
  EXPECT_EQ(of.created + of.reused, 20000u);
  EXPECT_EQ(of.in_use, 0u);
  EXPECT_EQ(static_cast<std::uint64_t>(number), of.created);
  expect_sums(of);
}

}  // namespace
