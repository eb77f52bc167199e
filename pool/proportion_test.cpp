// Proportion: what has to go beside what was live lately, and what stays.
#include "pool/proportion.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace cistern {
namespace {

constexpr Proportion::Limits kLimits{.percent = 120, .window_ns = 100, .kept_bytes_min = 10};

// A program whose memory is counted by hand.
class ProportionTest : public testing::Test {
 protected:
  ProportionTest() { proportion.set_limits(kLimits); }
  Proportion::Now now(std::uint64_t reserved_bytes, std::uint64_t live_bytes) const {
    return {reserved_bytes, live_bytes, waste_bytes, allocated_bytes, now_ns};
  }
  std::uint64_t begin(std::uint64_t reserved_bytes, std::uint64_t live_bytes) {
    return proportion.begin(now(reserved_bytes, live_bytes));
  }
  // What a begin() says whose caller does nothing.
  std::uint64_t excess(std::uint64_t reserved_bytes, std::uint64_t live_bytes) {
    const std::uint64_t bytes = begin(reserved_bytes, live_bytes);
    if (bytes) proportion.end(bytes);
    return bytes;
  }
  void make(std::uint64_t bytes, int count = 1) {
    for (int i = 0; i < count; ++i) proportion.note_there(bytes), proportion.note_new(bytes);
  }
  void give_up(std::uint64_t bytes, int count = 1) {
    for (int i = 0; i < count; ++i) proportion.note_gone(bytes);
  }

  std::uint64_t waste_bytes = 0, allocated_bytes = 1, now_ns = 1;
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

TEST_F(ProportionTest, ThereIsRoomForWhatWillHaveToBeMadeAgain) {
  proportion.note_live(1000);
  make(150, 3);
  EXPECT_EQ(excess(1200, 300), 0u) << "they are there";
  give_up(150, 2);
  EXPECT_EQ(excess(1200, 300), 0u) << "one is";
  give_up(150);
  EXPECT_EQ(excess(1200, 300), 450u) << "the most that there were";
  make(900);
  give_up(900);
  EXPECT_EQ(excess(1200, 300), 890u) << "of one size, the one with most";
  make(900);
  EXPECT_EQ(excess(1200, 300), 450u);
}

TEST_F(ProportionTest, RoomForWhatWasMadeLongAgoIsForgotten) {
  proportion.note_live(1000);
  EXPECT_EQ(excess(1200, 1000), 0u);
  make(150);
  give_up(150);
  for (const std::uint64_t expected : {150u, 150u, 0u}) {
    EXPECT_EQ(excess(1000, 1000), 0u) << "live memory stays";
    EXPECT_EQ(excess(1200, 0), expected);
    now_ns += 101;
    proportion.note_live(1000);
  }
}

TEST_F(ProportionTest, RoomIsForAsManyOfASizeAsThereWereLately) {
  proportion.note_live(10'000);
  EXPECT_EQ(excess(12'000, 10'000), 0u);
  make(100, 30);
  give_up(100, 29);
  for (const std::uint64_t expected : {3000u, 3000u, 100u}) {
    give_up(100);
    EXPECT_EQ(excess(12'000, 0), expected);
    make(100);
    now_ns += 101;
    proportion.note_live(10'000);
    EXPECT_EQ(excess(12'000, 10'000), 0u);
  }
}

TEST_F(ProportionTest, OfSizesThatWereNeverAskedForAgainFewAreKept) {
  proportion.note_live(1000);
  proportion.note_back(500, false);
  EXPECT_FALSE(proportion.asked_again(500));
  EXPECT_TRUE(proportion.keeps(500, now(1200, 1000)));
  EXPECT_FALSE(proportion.keeps(500, now(1201, 1000)));
  EXPECT_TRUE(proportion.keeps(500, now(510, 500))) << "the minimum";
  proportion.note_new(510);
  EXPECT_TRUE(proportion.asked_again(500)) << "about the same size";
  EXPECT_TRUE(proportion.keeps(500, now(5000, 1000)));
  EXPECT_FALSE(proportion.asked_again(700));
  proportion.note_back(700, true);
  EXPECT_TRUE(proportion.asked_again(700)) << "it had been kept and used again";
  proportion.note_back(700, false);
  EXPECT_TRUE(proportion.asked_again(700)) << "for ever";
}

TEST_F(ProportionTest, EverySizeHasAClass) {
  for (int bit = 0; bit < 64; ++bit) {
    const std::uint64_t bytes = std::uint64_t{1} << bit;
    for (const std::uint64_t of : {bytes - 1, bytes, bytes + 1, bytes + bytes / 8 * 7}) {
      make(of);
      proportion.note_back(of, true);
      EXPECT_TRUE(proportion.asked_again(of));
      give_up(of);
    }
  }
}

TEST_F(ProportionTest, BesideANewChunkStaysWhatItLeavesOfThePercent) {
  const auto stays = [&](std::uint64_t bytes, std::uint64_t live_bytes) {
    return proportion.may_stay_beside(bytes, now(0, live_bytes)).in_all;
  };
  proportion.note_live(1000);
  EXPECT_EQ(stays(100, 0), 1100u);
  EXPECT_EQ(stays(100, 700), 400u);
  EXPECT_EQ(stays(1000, 1000), 400u) << "of what is live then";
  EXPECT_EQ(stays(1190, 5), 125u);
  EXPECT_EQ(stays(20, 5), 1175u);
  now_ns = 102;
  EXPECT_EQ(stays(100, 0), 1100u) << "the window before";
  now_ns = 203;
  EXPECT_EQ(stays(100, 0), 20u);
  EXPECT_EQ(stays(10, 0), 10u) << "the minimum";
}

TEST_F(ProportionTest, BesideANewChunkNothingStaysThatWasNeverAskedForAgainAboveWhatWasLive) {
  const auto stays = [&](std::uint64_t bytes, std::uint64_t live_bytes) {
    return proportion.may_stay_beside(bytes, now(0, live_bytes)).never_asked_again;
  };
  proportion.note_live(1000);
  EXPECT_EQ(stays(100, 0), 900u);
  EXPECT_EQ(stays(100, 700), 200u);
  EXPECT_EQ(stays(100, 900), 2u) << "a part of the minimum";
  EXPECT_EQ(stays(1000, 1000), 2u);
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
      EXPECT_EQ(other.begin({1200, 100, 0, 1, ns}), 0u) << window_ns << " at " << ns;
  }
}

TEST_F(ProportionTest, WhatOthersWereToldIsNotSaidAgain) {
  proportion.note_live(1000);
  const std::uint64_t first = begin(1500, 0);
  EXPECT_EQ(first, 300u);
  EXPECT_EQ(begin(1500, 0), 0u);
  EXPECT_EQ(begin(1600, 0), 100u);
  proportion.end(first);
  EXPECT_EQ(excess(1400, 0), 100u);
}

TEST_F(ProportionTest, OffSaysNothing) {
  Proportion off;
  EXPECT_FALSE(off.may_be_over(~std::uint64_t{0} - 1, ~std::uint64_t{0}));
  off.set_limits({.percent = 0, .window_ns = 100, .kept_bytes_min = 10});
  EXPECT_FALSE(off.may_be_over(~std::uint64_t{0} - 1, 1000));
  EXPECT_EQ(off.begin({5000, 0, 0, 1, 1000}), 0u);
  EXPECT_TRUE(off.keeps(5000, {50'000, 0, 0, 1, 1000}));
}

TEST_F(ProportionTest, AChildBeginsAnew) {
  proportion.note_live(1000);
  make(900);
  give_up(900);
  proportion.note_back(900, true);
  ASSERT_NE(begin(5000, 0), 0u) << "and nobody ends it";
  proportion.after_fork_in_child();
  proportion.note_live(500);
  EXPECT_EQ(excess(700, 0), 100u);
  EXPECT_FALSE(proportion.asked_again(900));
}

TEST_F(ProportionTest, ThreadsTogetherAreToldNoMoreThanIsOver) {
  proportion.note_live(1000);
  std::atomic<std::uint64_t> reserved{100'000};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 2000; ++round) {
        const std::uint64_t bytes = proportion.begin({reserved.load(), 0, 0, 1, 1});
        if (!bytes) continue;
        reserved.fetch_sub(std::min<std::uint64_t>(bytes, 100));
        proportion.end(bytes);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(reserved.load(), 1200u - 3 * 100) << "each of the others may have given up its part since one looked";
  EXPECT_LT(reserved.load(), 100'000u);
}

}  // namespace
}  // namespace cistern
