// Proportion: what has to go beside what was live lately, and what stays.
#include "pool/proportion.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

namespace cistern {
namespace {

constexpr Proportion::Limits kLimits{.percent = 120, .window_ns = 100, .kept_bytes_min = 10};

// A program whose memory is counted by hand.
class ProportionTest : public testing::Test {
 protected:
  ProportionTest() { proportion.set_limits(kLimits); }
  GiveUp begin(std::uint64_t reserved_bytes, std::uint64_t live_bytes) {
    return proportion.begin(
        {reserved_bytes, live_bytes, waste_bytes, allocations, allocated_bytes, live_blocks, now_ns});
  }
  // What a begin() says whose caller does nothing.
  std::uint64_t excess(std::uint64_t reserved_bytes, std::uint64_t live_bytes) {
    const GiveUp what = begin(reserved_bytes, live_bytes);
    if (what.bytes) proportion.end(what, 0);
    return what.bytes;
  }

  std::uint64_t waste_bytes = 0, allocations = 1, allocated_bytes = 1, live_blocks = 0, now_ns = 1;
  Proportion proportion;
};

TEST_F(ProportionTest, WhatIsAboveThePercentOfTheMostThatWasLiveGoes) {
  proportion.note_live(1000);
  EXPECT_EQ(excess(1200, 300), 0u);
  EXPECT_EQ(excess(1201, 300), 1u);
  EXPECT_EQ(excess(5000, 0), 3800u);
}

TEST_F(ProportionTest, LiveMemoryAndTheMinimumStay) {
  proportion.note_live(1000);
  waste_bytes = 300;
  EXPECT_EQ(excess(1310, 1000), 0u) << "all live but for the minimum";
  EXPECT_EQ(excess(1311, 1000), 1u);
  waste_bytes = 0;
  EXPECT_FALSE(proportion.may_be_over(1200, now_ns));
  EXPECT_TRUE(proportion.may_be_over(1201, now_ns));
}

TEST_F(ProportionTest, ThereIsRoomForTheLargestThatHadToBeMadeButNeverLessThanWasLive) {
  proportion.note_live(1000);
  proportion.note_new(150);
  EXPECT_EQ(excess(1100, 300), 50u);
  proportion.note_new(900);
  EXPECT_EQ(excess(1100, 300), 100u);
  EXPECT_EQ(excess(1000, 0), 0u) << "all given back, to be taken again";
}

TEST_F(ProportionTest, WhatWasLiveIsForgottenAfterTwoWindows) {
  proportion.note_live(1000);
  EXPECT_EQ(excess(1200, 100), 0u);
  now_ns = 102;
  EXPECT_TRUE(proportion.may_be_over(0, now_ns));
  EXPECT_EQ(excess(1200, 100), 0u) << "the window before";
  EXPECT_FALSE(proportion.may_be_over(1200, now_ns));
  now_ns = 203;
  EXPECT_EQ(excess(1200, 100), 1200u - 120);
}

TEST_F(ProportionTest, TwoWindowsThatNobodyLookedAtAreOverAtOnce) {
  proportion.note_live(1000);
  EXPECT_EQ(excess(1200, 100), 0u);
  now_ns = 1000;
  EXPECT_EQ(excess(1200, 100), 1200u - 120);
}

TEST_F(ProportionTest, AWindowEndsWhenManyTimesWhatWasLiveWasAllocated) {
  proportion.note_live(1000);
  EXPECT_EQ(excess(1200, 100), 0u);
  for (int window = 0; window < 2; ++window) {
    allocated_bytes += 1000 * Proportion::kLivesInWindow + 1;
    EXPECT_EQ(excess(1200, 100), window ? 1200u - 120 : 0u);
  }
}

TEST_F(ProportionTest, WithoutAWindowsLengthOrWithAnEndlessOneTimeEndsNone) {
  for (const std::uint64_t window_ns : {std::uint64_t{0}, ~std::uint64_t{0} - 5}) {
    Proportion other;
    other.set_limits({.percent = 120, .window_ns = window_ns, .kept_bytes_min = 10});
    other.note_live(1000);
    for (const std::uint64_t ns : {std::uint64_t{10}, std::uint64_t{1} << 60, std::uint64_t{1} << 62})
      EXPECT_EQ(other.begin({1200, 100, 0, 1, 1, 0, ns}).bytes, 0u) << window_ns << " at " << ns;
  }
}

TEST_F(ProportionTest, WhatOthersWereToldIsNotSaidAgain) {
  proportion.note_live(1000);
  const GiveUp first = begin(1500, 0);
  EXPECT_EQ(first.bytes, 300u);
  EXPECT_EQ(begin(1500, 0).bytes, 0u);
  EXPECT_EQ(begin(1600, 0).bytes, 100u);
  proportion.end(first, 1);
  EXPECT_EQ(excess(1400, 0), 100u);
}

// All that is said until nothing is, by callers who find as many chunks as they may give up.
std::uint64_t all_that_go(const std::function<GiveUp()>& begin, Proportion& proportion) {
  std::uint64_t gone = 0;
  for (GiveUp what = begin(); what.bytes; what = begin()) {
    EXPECT_LE(what.chunks_max, Proportion::kChunksAtOnceMax);
    gone += what.chunks_max;
    proportion.end(what, what.chunks_max);
  }
  return gone;
}

TEST_F(ProportionTest, FewGoForEachAllocation) {
  proportion.note_live(1000);
  const auto gone = [&] { return all_that_go([&] { return begin(5000, 0); }, proportion); };
  const std::uint64_t at_first = gone();
  EXPECT_GT(at_first, 0u);
  EXPECT_LE(at_first, 20u) << "a program that has just begun";
  allocations += 100 * Proportion::kAllocationsForEach;
  EXPECT_EQ(gone(), 100u);
  allocations += 1'000'000'000;
  EXPECT_LE(gone(), 300u) << "a long time without does not allow many at once";
}

TEST_F(ProportionTest, AsManyMoreGoAsBlocksWereLiveAtMostButOnce) {
  proportion.note_live(1000);
  const auto gone = [&] { return all_that_go([&] { return begin(5000, 0); }, proportion); };
  gone();
  live_blocks = 50;
  EXPECT_EQ(gone(), 50u);
  live_blocks = 10;
  EXPECT_EQ(gone(), 0u);
  live_blocks = 60;
  EXPECT_EQ(gone(), 10u);
}

TEST_F(ProportionTest, AChildEarnsAnewToo) {
  proportion.note_live(1000);
  allocations = 100'000, live_blocks = 50;
  const auto gone = [&] { return all_that_go([&] { return begin(5000, 0); }, proportion); };
  gone();
  proportion.after_fork_in_child();
  proportion.note_live(1000);
  allocations = 1, live_blocks = 30;
  const std::uint64_t at_first = gone();
  EXPECT_GT(at_first, 30u);
  EXPECT_LE(at_first, 50u);
  allocations += 5 * Proportion::kAllocationsForEach;
  EXPECT_EQ(gone(), 5u);
}

TEST_F(ProportionTest, OffSaysNothing) {
  Proportion off;
  EXPECT_FALSE(off.may_be_over(~std::uint64_t{0} - 1, ~std::uint64_t{0}));
  off.set_limits({.percent = 0, .window_ns = 100, .kept_bytes_min = 10});
  EXPECT_FALSE(off.may_be_over(~std::uint64_t{0} - 1, 1000));
  EXPECT_EQ(off.begin({5000, 0, 0, 1, 1, 0, 1000}).bytes, 0u);
}

TEST_F(ProportionTest, AChildBeginsAnew) {
  proportion.note_live(1000);
  proportion.note_new(900);
  ASSERT_NE(begin(5000, 0).bytes, 0u) << "and nobody ends it";
  proportion.after_fork_in_child();
  proportion.note_live(500);
  EXPECT_EQ(excess(700, 0), 100u);
}

TEST_F(ProportionTest, ThreadsTogetherAreToldNoMoreThanIsOver) {
  proportion.note_live(1000);
  std::atomic<std::uint64_t> reserved{100'000};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 2000; ++round) {
        const GiveUp what = proportion.begin({reserved.load(), 0, 0, 1u + static_cast<unsigned>(round), 1, 0, 1});
        if (!what.bytes) continue;
        const std::uint64_t part = std::min<std::uint64_t>(what.bytes, 100);
        reserved.fetch_sub(part);
        proportion.end(what, 1);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(reserved.load(), 1200u);
  EXPECT_LT(reserved.load(), 100'000u);
}

}  // namespace
}  // namespace cistern
