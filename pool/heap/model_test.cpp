// Random calls of several threads against a model: contents stay, whoever frees; when the threads have ended, the
// pool's counts and its list of live blocks are the model's. Threads come and go, blocks outlive them.
// CISTERN_TEST_SEED repeats a run; CISTERN_TEST_ROUNDS makes it longer (8 by default).
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "pool/heap/medium.hpp"
#include "tests/support/host_pool.hpp"
#include "tests/support/random.hpp"

namespace cistern::host_pool {
namespace {

using test::get;
using test::Live;
using test::live_now;
using test::live_since;
using test::put;

struct Held {
  void* block = nullptr;
  std::size_t bytes = 0;
  std::uint64_t tag = 0;
};

std::size_t random_size(std::mt19937& random) {
  const unsigned draw = random() % 1000;
  if (draw < 600) return random() % 200;
  if (draw < 800) return random() % 2000;
  if (draw < 900) return class_bytes(random() % kClasses) - random() % 2;
  if (draw < 960) return random() % 40000;
  if (draw < 995) return 30000 + random() % 200000;
  return (std::size_t{1} << 20) + random() % (6 << 20);
}

// Blocks on their way from one thread to another.
class Exchange {
 public:
  Held swap(Held one, std::mt19937& random) {
    std::lock_guard hold(mutex_);
    Held& place = places_[random() % std::size(places_)];
    std::swap(place, one);
    return one;
  }
  std::vector<Held> empty() {
    std::vector<Held> rest;
    for (Held& place : places_) {
      if (place.block) rest.push_back(place);
      place = {};
    }
    return rest;
  }

 private:
  std::mutex mutex_;
  Held places_[200];
};

class ModelThread {
 public:
  ModelThread(unsigned seed, std::vector<Held> held, Exchange& exchange)
      : random_(seed), held_(std::move(held)), exchange_(exchange) {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      if (i % 500 == 0) wanted_ = 20 + random_() % 600;
      if (random_() % 1000 == 0) trim(0);
      const unsigned draw = random_() % 100;
      if (draw < 12) {
        const Held got = exchange_.swap(pick(), random_);
        if (got.block) held_.push_back(got);
      } else if (held_.size() < wanted_ ? draw < 70 : draw < 30) {
        make();
      } else if (draw < 85) {
        const Held one = pick();
        if (one.block) drop(one);
      } else {
        resize();
      }
    }
  }
  const std::vector<Held>& held() const { return held_; }

 private:
  Held pick() {
    if (held_.empty()) return {};
    std::swap(held_[random_() % held_.size()], held_.back());
    const Held one = held_.back();
    held_.pop_back();
    return one;
  }
  void finish(Held one) {
    one.tag = random_();
    test::fill(one.block, one.bytes, one.tag);
    held_.push_back(one);
  }
  void make() {
    Held one{nullptr, random_size(random_), 0};
    const unsigned draw = random_() % 10;
    if (draw < 7) {
      one.block = get(one.bytes);
    } else if (draw < 8) {
      one.block = allocate_zeroed(one.bytes);
      if (one.block && one.bytes < 300'000) {
        EXPECT_TRUE(test::is_zero(one.block, one.bytes));
      }
    } else {
      const std::size_t alignment = std::size_t{1} << random_() % 18;
      one.block = allocate_aligned(alignment, one.bytes);
      EXPECT_EQ(address_of(one.block) % alignment, 0u);
    }
    ASSERT_TRUE(one.block);
    ASSERT_EQ(address_of(one.block) % kGranule, 0u);
    ASSERT_GE(usable_bytes(one.block), one.bytes);
    if (random_() % 8 == 0) one.bytes = usable_bytes(one.block);
    finish(one);
  }
  void drop(const Held& one) {
    ASSERT_TRUE(test::is_filled(one.block, one.bytes, one.tag)) << one.bytes;
    ASSERT_EQ(put(one.block), Freed::yes);
  }
  void resize() {
    Held one = pick();
    if (!one.block) return;
    const std::size_t bytes = random_() % 3 ? random_size(random_) : one.bytes + random_() % 5000;
    void* const resized = keeps_place(one.block, bytes) ? one.block : reallocate(one.block, bytes);
    ASSERT_TRUE(resized);
    ASSERT_TRUE(test::is_filled(resized, one.bytes, one.tag, std::min(one.bytes, bytes))) << one.bytes;
    one.block = resized;
    one.bytes = bytes;
    finish(one);
  }

  std::mt19937 random_;
  std::vector<Held> held_;
  std::size_t wanted_ = 0;
  Exchange& exchange_;
};

int rounds() {
  const char* wanted = std::getenv("CISTERN_TEST_ROUNDS");
  return wanted ? std::atoi(wanted) : 8;
}

TEST(HostModelTest, ThreadsAgainstAModel) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  constexpr int kThreads = 4;
  const Live before = live_now();
  Exchange exchange;
  std::vector<Held> left[kThreads];
  std::mt19937 random(seed);
  for (int round = 0; round < rounds() && !HasFailure(); ++round) {
    std::vector<ModelThread> models;
    for (auto& held : left) models.emplace_back(random(), std::move(held), exchange);
    std::vector<std::thread> running;
    for (ModelThread& model : models) running.emplace_back([&model] { model.run(4000); });
    for (std::thread& thread : running) thread.join();

    std::vector<Held> all = exchange.empty();
    for (ModelThread& model : models) all.insert(all.end(), model.held().begin(), model.held().end());
    Live live;
    for (const Held& one : all) test::count_block(live, one.block, 1);
    const Live counted = live_since(before);
    for (const auto& [bytes, blocks] : counted) EXPECT_EQ(blocks, live[bytes]) << bytes;
    EXPECT_EQ(counted.size(), live.size()) << "round " << round;
    EXPECT_EQ(test::region_fault(), "") << "round " << round;
    // The next round's threads get others' blocks.
    for (auto& held : left) held.clear();
    for (const Held& one : all) left[random() % kThreads].push_back(one);
    if (round % 3 == 2) trim_region(0);
  }
  test::in_new_thread([&] {
    for (const auto& held : left)
      for (const Held& one : held) {
        ASSERT_TRUE(test::is_filled(one.block, one.bytes, one.tag));
        ASSERT_EQ(put(one.block), Freed::yes);
      }
  });
  EXPECT_EQ(live_since(before), Live{});
  EXPECT_EQ(test::region_fault(), "");
}

}  // namespace
}  // namespace cistern::host_pool
