// Calibration on machines that are made up: which way it takes in the end, and what it costs to find out.
#include "pool/staging/calibration.hpp"

#include <gtest/gtest.h>

namespace cistern::staging {
namespace {

constexpr std::uint64_t kBytes = 16 << 20, kSecond = 1'000'000'000;

struct Times {
  std::uint64_t end_to_end, blocked;
};
struct Machine {
  Times native, staged;
  Times of(Way way) const { return way == Way::staged ? staged : native; }
};

// Copies once as the calibration says; the way it went.
Way copy(Calibration& calibration, const Machine& machine, std::uint64_t process_ns = 1000 * kSecond,
         bool counts = true) {
  const auto [way, trial, _] = calibration.choose(kBytes, process_ns);
  const Times took = machine.of(way);
  if (trial && counts) calibration.tried(way, kBytes, {took.end_to_end, took.blocked, kBytes});
  if (!trial) calibration.copied(way, kBytes, took.blocked);
  return way;
}

struct Ways {
  int staged = 0, last_staged = 0;
  Way last = Way::native;
};
Ways copy_often(Calibration& calibration, const Machine& machine, int copies = 100,
                std::uint64_t process_ns = 1000 * kSecond, bool counts = true) {
  Ways ways;
  for (int i = 0; i < copies; ++i) {
    ways.last = copy(calibration, machine, process_ns, counts);
    if (ways.last == Way::staged) ++ways.staged, ways.last_staged = i;
  }
  return ways;
}

TEST(Calibration, KnowsItsRanges) {
  EXPECT_EQ(range_of(0), 0u);
  EXPECT_EQ(range_of((8 << 10) - 1), 0u);
  EXPECT_EQ(range_of(8 << 10), 1u);
  EXPECT_EQ(range_of(16 << 10), 2u);
  EXPECT_EQ(range_of(UINT64_MAX), kRanges - 1);
  EXPECT_EQ(range_bytes_min(range_of(16 << 20)), 16u << 20);
}

TEST(Calibration, TakesTheWayThatWins) {
  const Machine faster{{9000, 9000}, {3000, 3000}}, sooner_back{{9000, 9000}, {9400, 1000}},
      a_little_slower{{9000, 9000}, {9100, 9100}}, dear_end{{9000, 9000}, {9600, 1000}};
  for (const Machine& machine : {faster, sooner_back}) {
    Calibration calibration;
    EXPECT_EQ(copy_often(calibration, machine).last, Way::staged);
    EXPECT_EQ(calibration.figures(range_of(kBytes))->won, Way::staged);
  }
  for (const Machine& machine : {a_little_slower, dear_end}) {
    Calibration calibration;
    const Ways ways = copy_often(calibration, machine);
    EXPECT_EQ(ways.last, Way::native);
    EXPECT_EQ(ways.staged, 3);
  }
}

TEST(Calibration, OneTrialIsEnoughToLose) {
  Calibration calibration;
  EXPECT_EQ(copy_often(calibration, {{1000, 1000}, {5000, 5000}}).staged, 1);
}

TEST(Calibration, TriesADriverThatIsMuchSlowerNoMore) {
  constexpr std::uint64_t kMillisecond = 1'000'000;
  const auto copies_of_the_driver = [](const Machine& machine) {
    Calibration calibration;
    return 100 - copy_often(calibration, machine).staged;
  };
  const Times staged{2 * kMillisecond, 2 * kMillisecond};
  EXPECT_EQ(copies_of_the_driver({{23 * kMillisecond, 23 * kMillisecond}, staged}), 1);
  EXPECT_EQ(copies_of_the_driver({{21 * kMillisecond, 21 * kMillisecond}, staged}), 2) << "less than 20 ms more";
  EXPECT_EQ(copies_of_the_driver({{5 * kMillisecond, 5 * kMillisecond}, staged}), 2) << "more than twice as long";
  EXPECT_EQ(copies_of_the_driver({{5 * kMillisecond, 3 * kMillisecond}, staged}), 3) << "not in both times";
}

// The driver's first copy may take time for other things, which does not grow with the size of the whole copy.
TEST(Calibration, TheFirstBytesOfANativeTrialAreEnoughWhereTheyAreSlow) {
  constexpr std::uint64_t kMillisecond = 1'000'000;
  Calibration calibration;
  const auto native_first_bytes = [&](std::uint64_t took) {
    const Calibration::Choice choice = calibration.choose(kBytes, kSecond);
    EXPECT_EQ(choice.way, Way::native);
    calibration.tried(choice.way, kBytes, {took, took, kFirstBytes});
    return choice.first_bytes_may;
  };
  const auto staged = [&] {
    const Calibration::Choice choice = calibration.choose(kBytes, kSecond);
    EXPECT_EQ(choice.way, Way::staged);
    EXPECT_FALSE(choice.first_bytes_may);
    calibration.tried(choice.way, kBytes, {kMillisecond, kMillisecond, kBytes});
  };
  EXPECT_TRUE(native_first_bytes(15 * kMillisecond));
  staged();
  EXPECT_FALSE(calibration.figures(range_of(kBytes))->won) << "15 ms may be what the first copy needs besides";
  EXPECT_TRUE(native_first_bytes(8 * kMillisecond));
  EXPECT_EQ(calibration.figures(range_of(kBytes))->won, Way::staged);
}

TEST(Calibration, TheFirstBytesAreNotApartOnceTheDriverIsKnownToBeFast) {
  Calibration calibration;
  const Machine machine{{kSecond / 100, kSecond / 100}, {kSecond / 100, kSecond / 100}};
  EXPECT_TRUE(calibration.choose(kBytes, kSecond).first_bytes_may);
  copy_often(calibration, machine, 1);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(calibration.choose(kBytes, kSecond).first_bytes_may);
  Calibration of_small_ones;
  EXPECT_FALSE(of_small_ones.choose(4 << 20, kSecond).first_bytes_may) << "it would be half of the copy";
}

TEST(Calibration, TrialsThatDoNotCountEndAfterEight) {
  Calibration calibration;
  const Machine machine{{1000, 1000}, {500, 500}};
  copy(calibration, machine);  // the native one counts, so it is the staged one's turn
  const Ways ways = copy_often(calibration, machine, 1000, 1000 * kSecond, false);
  EXPECT_EQ(ways.staged, static_cast<int>(kTrialsMax));
  EXPECT_EQ(ways.last, Way::native);
}

TEST(Calibration, CostsOnePercentOfTheTimeBeyondTheFirstTrial) {
  const Machine machine{{kSecond, kSecond}, {kSecond + kSecond / 2, kSecond + kSecond / 2}};
  Calibration calibration;
  EXPECT_EQ(copy_often(calibration, machine, 20, 10 * kSecond).staged, 1) << "half a second of ten is lost";
  EXPECT_EQ(copy_often(calibration, machine, 100, 1000 * kSecond).staged, 2) << "of a thousand, more may be";
  EXPECT_EQ(calibration.figures(range_of(kBytes))->won, Way::native);
}

TEST(Calibration, LooksAgainWhenCopiesTakeMuchLongerThanTheyDid) {
  Calibration calibration;
  copy_often(calibration, {{9000, 9000}, {3000, 3000}});
  const Machine loaded{{9000, 9000}, {30000, 30000}};
  EXPECT_EQ(copy_often(calibration, loaded).last, Way::native);
}

TEST(Calibration, ASingleStrangeCopyChangesNothing) {
  Calibration calibration;
  copy_often(calibration, {{9000, 9000}, {3000, 3000}});
  for (int i = 0; i < 100; ++i) {
    copy(calibration, {{9000, 9000}, {90000, 90000}});
    copy(calibration, {{9000, 9000}, {3000, 3000}});
  }
  EXPECT_EQ(copy(calibration, {{9000, 9000}, {3000, 3000}}), Way::staged);
}

TEST(Calibration, RangesAreApart) {
  Calibration calibration;
  copy_often(calibration, {{9000, 9000}, {3000, 3000}});
  EXPECT_EQ(calibration.choose(kBytes / 4, kSecond).way, Way::native);
  EXPECT_FALSE(calibration.figures(range_of(kBytes / 4))->won);
  EXPECT_FALSE(calibration.figures(range_of(kBytes / 2)));
  EXPECT_FALSE(calibration.choose(1000, kSecond).trial);
}

}  // namespace
}  // namespace cistern::staging
