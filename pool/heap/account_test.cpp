// Counting beside threads at work: whatever they do meanwhile it ends, says nothing impossible, and is exact again when
// they are quiet.
#include "pool/heap/account.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "pool/heap/region.hpp"
#include "tests/support/host_pool.hpp"
#include "tests/support/random.hpp"

namespace cistern::host_pool {
namespace {

using test::get;
using test::put;

constexpr int kThreads = 4, kPlaces = 400;

struct Exchange {
  std::atomic<void*> places[kPlaces] = {};
  std::atomic<bool> ended{false};
};

std::size_t random_bytes(std::mt19937& random) {
  const unsigned draw = random() % 100;
  return sizeof(void*) + (draw < 90 ? random() % 600 : draw < 99 ? random() % 40000 : random() % 300000);
}

// Its first word is what the next pointer of a free block is taken for by one who comes late.
void* made(std::mt19937& random, const Exchange& exchange) {
  const std::size_t bytes = random_bytes(random);
  void* const block = random() % 8 ? get(bytes) : allocate_aligned(64, bytes);
  const auto near = reinterpret_cast<std::uintptr_t>(exchange.places[random() % kPlaces].load());
  const std::uintptr_t words[] = {near, near + 16 * (random() % 64), near + random() % 16, random(), 8};
  std::memcpy(block, &words[random() % 5], sizeof words[0]);
  return block;
}

void end(void* block) {
  if (!block) return;
  EXPECT_EQ(put(block), Freed::yes);
}

void churn(Exchange& exchange, unsigned seed) {
  for (std::mt19937 random(seed); !exchange.ended;)
    test::in_new_thread([&] {
      for (int i = 0; i < 3000 && !exchange.ended; ++i) {
        end(exchange.places[random() % kPlaces].exchange(nullptr));
        end(exchange.places[random() % kPlaces].exchange(made(random, exchange)));
      }
    });
}

TEST(HostAccountTest, CountsBesideThreadsAtWork) {
  if (CISTERN_TEST_TSAN) GTEST_SKIP() << "counting reads what others write, and believes none of it: races by design";
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  const test::Live before = test::live_now();
  Exchange exchange;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back([&, i] { churn(exchange, seed + i); });
  for (int i = 0; i < 300; ++i) {
    const Account now = account();
    EXPECT_LT(now.live_blocks(), 1u << 30);
    EXPECT_LT(now.live_bytes(), std::uint64_t{1} << 40);
    EXPECT_LE(region_figures().dirty_bytes, region_figures().mapped_bytes);
    if (i % 50 == 0) trim_region(0);
    std::this_thread::yield();
  }
  exchange.ended = true;
  for (std::thread& thread : threads) thread.join();
  test::Live live;
  for (const auto& place : exchange.places)
    if (void* const block = place) test::count_block(live, block, 1);
  EXPECT_EQ(test::live_since(before), live);
  test::in_new_thread([&] {
    for (auto& place : exchange.places) end(place.exchange(nullptr));
  });
  EXPECT_EQ(test::live_since(before), test::Live{});
}

}  // namespace
}  // namespace cistern::host_pool
