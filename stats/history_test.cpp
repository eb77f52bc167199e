// Trends of levels that are known.
#include "stats/history.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

namespace cistern {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

// A run of `ms`: level(t) is noted `per_ms` times a millisecond.
History run_of(std::uint64_t ms, const std::function<double(double)>& level, std::uint64_t from_ms = 50) {
  History history;
  for (std::uint64_t t = 0; t < ms; ++t)
    history.note(from_ms + t, static_cast<std::uint64_t>(level(static_cast<double>(t) / 1e3)), from_ms + t);
  return history;
}

Trend trend_of_run(std::uint64_t ms, const std::function<double(double)>& level) {
  return run_of(ms, level).trend(50 + ms);
}

class History_ : public testing::TestWithParam<std::uint64_t> {  // length of the run in ms
 protected:
  static double seconds() { return static_cast<double>(GetParam()) / 1e3; }
};

TEST_P(History_, LinearGrowthHasItsRate) {
  const Trend trend = trend_of_run(GetParam(), [](double s) { return 64 * kMiB + 3e6 * s; });
  ASSERT_EQ(trend.kind, TrendKind::growing);
  EXPECT_NEAR(trend.bytes_per_s, 3e6, 0.05 * 3e6);
  EXPECT_LT(trend.since_s, 0.05 + seconds() / 8);
  EXPECT_NEAR(trend.bytes, 3e3 * static_cast<double>(GetParam()), 0.13 * 3e3 * static_cast<double>(GetParam()));
}

TEST_P(History_, StepsGrowAtTheirMeanRate) {
  const double length = seconds(), step = length / 9.3;
  const Trend trend = trend_of_run(GetParam(), [&](double s) { return 10 * kMiB * (1 + std::floor(s / step)); });
  ASSERT_EQ(trend.kind, TrendKind::growing);
  EXPECT_NEAR(trend.bytes_per_s, 10 * kMiB / step, 0.1 * 10 * kMiB / step);
}

TEST_P(History_, WhatGrowsUnderAChangingLoadGrows) {
  std::mt19937 random(7);
  const Trend trend =
      trend_of_run(GetParam(), [&](double s) { return 1e6 * s + static_cast<double>(random() % (200 * kMiB)); });
  const double noise_per_run = 2e8 / (seconds());
  if (noise_per_run > 1e5) return;  // more changes in a run than growth
  ASSERT_EQ(trend.kind, TrendKind::growing);
  EXPECT_NEAR(trend.bytes_per_s, 1e6, 1e5);
}

TEST_P(History_, WarmUpsAndCachesWithABoundAreConstant) {
  const double length = seconds();
  for (const double part : {0.1, 0.3, 0.5, 0.7}) {
    const auto level = [&](double s) { return 5e6 * std::min(s, part * length); };
    EXPECT_EQ(trend_of_run(GetParam(), level).kind, TrendKind::constant) << part;
  }
}

TEST_P(History_, GrowthAfterAWarmUpHasItsBegin) {
  const double length = seconds();
  const Trend trend = trend_of_run(GetParam(), [&](double s) {
    return 50e6 * std::min(s, length / 20) + (s > length / 2 ? 1e6 * (s - length / 2) : 0);
  });
  ASSERT_EQ(trend.kind, TrendKind::growing);
  EXPECT_NEAR(trend.bytes_per_s, 1e6, 1e5);
  EXPECT_NEAR(trend.since_s, 0.05 + length / 2, length / 8);
}

TEST_P(History_, WhatChangesWithoutGrowingIsConstant) {
  // Random changes may look like growth now and then.
  const unsigned runs = GetParam() > 100'000 ? 100 : 300;
  unsigned wrong = 0;
  for (unsigned seed = 1; seed <= runs; ++seed) {
    std::mt19937 random(seed);
    // Saw teeth of random lengths, up to a twentieth of the run, on a level that changes a little.
    const std::uint64_t highest = GetParam() * 100'000 / 20;
    double level = 0, top = 1;
    const Trend trend = trend_of_run(GetParam(), [&](double) {
      level += 1e5;
      if (level > top) level = 0, top = static_cast<double>(random() % highest);
      return 8 * kMiB + level + static_cast<double>(random() % kMiB);
    });
    wrong += trend.kind != TrendKind::constant;
  }
  EXPECT_LE(wrong, runs / 100);
}

TEST_P(History_, WhatIsFreedAtTheEndHasGrown) {
  const double length = seconds();
  const Trend trend = trend_of_run(GetParam(), [&](double s) { return s < 0.99 * length ? 2e6 * s : 0; });
  ASSERT_EQ(trend.kind, TrendKind::growing);
  EXPECT_NEAR(trend.bytes_per_s, 2e6, 2e5);
}

TEST_P(History_, WhatIsFreedLongBeforeTheEndHasGrown) {
  const double length = seconds();
  const Trend trend = trend_of_run(GetParam(), [&](double s) { return s < 0.6 * length ? 2e6 * s : 0; });
  ASSERT_EQ(trend.kind, TrendKind::growing);
  EXPECT_NEAR(trend.bytes_per_s, 2e6, 2e5);
  const auto bounded = [&](double s) { return s < 0.8 * length ? std::min(2e6 * s, 2e6 * length * 0.4) : 0; };
  EXPECT_EQ(trend_of_run(GetParam(), bounded).kind, TrendKind::constant);
}

INSTANTIATE_TEST_SUITE_P(Lengths, History_, testing::Values(1'200, 4'000, 100'000, 777'777));

TEST(History, WhatWasAllocatedAtTheStartIsAOneOff) {
  History history;
  for (std::uint64_t t = 0; t < 10; ++t) history.note(100 + t, (t + 1) * kMiB, 100 + t);
  EXPECT_EQ(history.trend(5000).kind, TrendKind::one_off);
  history.note(4000, 11 * kMiB, 4000);
  EXPECT_EQ(history.trend(5000).kind, TrendKind::constant);
}

TEST(History, WhatRoseAtLastIsTold) {
  EXPECT_TRUE(rose_at_last(run_of(4000, [](double s) { return 1e6 * s; }).levels(4050)));
  EXPECT_FALSE(rose_at_last(run_of(4000, [](double s) { return 1e6 * std::min(s, 2.5); }).levels(4050)));
  EXPECT_FALSE(rose_at_last(Levels{}));
}

TEST(History, WhatOnlyMovedDidNotRiseBesideIt) {
  // Eight blocks, replaced at another place one by one.
  const auto moved = [](double s) { return 6e6 * std::min(std::floor(s / 0.25), 8.0); };
  const Trend growth = trend_of_run(2000, moved);
  ASSERT_EQ(growth.kind, TrendKind::growing);
  const auto beside = [&growth](const std::function<double(double)>& all) {
    return rose_beside(run_of(2000, all).levels(2050), growth);
  };
  EXPECT_FALSE(beside([](double) { return 48e6; }));
  EXPECT_FALSE(beside([&](double s) { return 48e6 - moved(s); }));
  EXPECT_FALSE(beside([&](double s) { return 48e6 + moved(s) / 5; }));
  EXPECT_TRUE(beside(moved));
  EXPECT_TRUE(beside([&](double s) { return 480e6 + moved(s); }));
  EXPECT_TRUE(beside([&](double s) { return s < 1.98 ? 480e6 + moved(s) : 0; }));
  EXPECT_FALSE(rose_beside(Levels{}, growth));
}

TEST(History, WhatIsDrawnAtRandomSeldomLooksLikeGrowth) {
  // As levels of what is looked at a few times an interval.
  constexpr unsigned kRuns = 20'000;
  unsigned grew = 0, rose = 0;
  std::mt19937 random(11);
  for (unsigned run = 0; run < kRuns; ++run) {
    Levels levels{0, 1, {}, {}};
    for (unsigned count = 17 + run % 17; count > 0; --count) {
      std::uint64_t least = 70;
      for (unsigned look = 0; look <= run % 4; ++look) least = std::min<std::uint64_t>(least, 20 + random() % 50);
      levels.least.push_back(least);
      levels.last.push_back(least);
    }
    grew += trend_of(levels).kind == TrendKind::growing;
    rose += rose_at_last(levels);
  }
  EXPECT_LE(grew, kRuns / 1000);
  EXPECT_LE(rose, kRuns / 100);
}

TEST(History, NothingOfTheEndCounts) {
  const auto level = [](double s) { return 1e6 * s; };
  History history = run_of(2000, level);
  EXPECT_EQ(history.trend(4000).kind, TrendKind::constant);
  histories_ended_ms = 2050;
  history.note(2060, 1, 2060);
  const Trend trend = history.trend(4000);
  const std::size_t levels = history.levels(4000).least.size();
  histories_ended_ms = 0;
  EXPECT_EQ(trend.kind, TrendKind::growing);
  EXPECT_EQ(levels, history.levels(2050).least.size());
}

TEST(History, AShortRunHasNoTrend) {
  EXPECT_EQ(History().trend(1000).kind, TrendKind::unknown);
  EXPECT_EQ(trend_of_run(999, [](double s) { return 1e9 * s; }).kind, TrendKind::unknown);
}

TEST(History, LevelsAreTheLeastAndTheLastOfEachInterval) {
  History history;
  history.note(10, 5, 10);
  history.note(10, 3, 0);
  history.note(11, 8, 11);
  history.note(14, 2, 0);
  const Levels levels = history.levels(15);
  EXPECT_EQ(levels.interval_s, 0.001);
  EXPECT_EQ(levels.start_s, 0.010);
  EXPECT_EQ(levels.least, (Vector<std::uint64_t>{3, 3, 8, 8, 2, 2}));
  EXPECT_EQ(levels.last, (Vector<std::uint64_t>{3, 8, 8, 8, 2, 2}));
}

TEST(History, AnHourIsKeptInAsFewPoints) {
  History history;
  for (std::uint64_t t = 0; t < 3'600'000; t += 7) history.note(t, t, t);
  const Levels levels = history.levels(3'600'000);
  EXPECT_LE(levels.least.size(), 33u);
  EXPECT_GE(levels.least.size(), 16u);
  for (std::size_t i = 0; i < levels.least.size(); ++i)
    EXPECT_NEAR(static_cast<double>(levels.least[i]), static_cast<double>(i) * levels.interval_s * 1e3, 8);
}

}  // namespace
}  // namespace cistern
