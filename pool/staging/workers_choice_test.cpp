// How many threads the choice settles on, for sources that carry so many.
#include "pool/staging/workers_choice.hpp"

#include <gtest/gtest.h>

#include <set>

namespace cistern::staging {
namespace {

constexpr std::size_t kBytes = 4 << 20;

// Nanoseconds of a copy by so many threads, where each brings as much as the first up to `carried`, and then each takes
// away `loss` of it.
std::uint64_t time_of(unsigned threads, unsigned carried, double loss = 0) {
  const unsigned beyond = threads > carried ? threads - carried : 0;
  const double speed = std::min(threads, carried) - loss * beyond;
  return static_cast<std::uint64_t>(kBytes / speed);
}

struct Outcome {
  unsigned settled;
  std::set<unsigned> tried;
};
Outcome choose(unsigned most, unsigned carried, double loss = 0, int copies = 100) {
  WorkersChoice choice;
  Outcome outcome{};
  for (int i = 0; i < copies; ++i) {
    const WorkersChoice::Next next = choice.next(most);
    outcome.tried.insert(next.threads);
    choice.took(next, kBytes, time_of(next.threads, carried, loss));
  }
  outcome.settled = choice.next(most).threads;
  return outcome;
}

TEST(WorkersChoice, TakesAsManyAsTheSourceCarries) {
  EXPECT_EQ(choose(16, 16).settled, 16u);
  EXPECT_EQ(choose(16, 8).settled, 8u);
  EXPECT_EQ(choose(16, 4).settled, 4u);
  EXPECT_EQ(choose(16, 2).settled, 2u);
  EXPECT_EQ(choose(16, 1).settled, 1u);
}

TEST(WorkersChoice, TakesNoneThatTakeTimeAway) {
  EXPECT_EQ(choose(16, 4, 0.3).settled, 4u);
  EXPECT_EQ(choose(16, 1, 0.05).settled, 1u);
}

TEST(WorkersChoice, NeverTakesMoreThanMay) {
  for (unsigned most = 1; most <= 16; ++most)
    for (const unsigned carried : {1u, 3u, 16u}) {
      const Outcome outcome = choose(most, carried);
      EXPECT_LE(*outcome.tried.rbegin(), most);
      EXPECT_GE(*outcome.tried.begin(), 1u);
    }
}

TEST(WorkersChoice, LooksAgainWhenMoreMay) {
  WorkersChoice choice;
  for (int i = 0; i < 50; ++i) choice.took(choice.next(1), kBytes, time_of(1, 8));
  for (int i = 0; i < 50; ++i) {
    const WorkersChoice::Next next = choice.next(8);
    choice.took(next, kBytes, time_of(next.threads, 8));
  }
  EXPECT_EQ(choice.threads(), 8u);
}

TEST(WorkersChoice, LooksAgainAfterSomeThousandCopies) {
  WorkersChoice choice;
  const auto copy = [&](unsigned copies, unsigned carried) {
    for (unsigned i = 0; i < copies; ++i) {
      const WorkersChoice::Next next = choice.next(8);
      choice.took(next, kBytes, time_of(next.threads, carried));
    }
  };
  copy(100, 8);
  EXPECT_EQ(choice.threads(), 8u);
  copy(2000, 1);
  EXPECT_EQ(choice.threads(), 8u);
  copy(WorkersChoice::kCopiesBetweenLooks, 1);
  EXPECT_LE(choice.threads(), 4u);
}

TEST(WorkersChoice, TheFirstCopyOfANumberDoesNotCount) {
  WorkersChoice choice;
  EXPECT_FALSE(choice.next(8).counts);
  EXPECT_TRUE(choice.next(8).counts);
}

}  // namespace
}  // namespace cistern::staging
