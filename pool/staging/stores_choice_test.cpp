// The choice of stores, from times that the test makes up.
#include "pool/staging/stores_choice.hpp"

#include <gtest/gtest.h>

namespace cistern::staging {
namespace {

struct Nanoseconds {
  std::uint64_t cached, streaming;
};

// As many copies of 1,000 bytes as a look takes.
void look(StoresChoice& choice, Nanoseconds takes, unsigned favour_cached = 0) {
  for (unsigned i = 0; i < StoresChoice::kCopiesOfALook; ++i) {
    const auto copy = choice.next();
    choice.took(copy, 1000, copy.stores == Stores::cached ? takes.cached : takes.streaming, favour_cached);
  }
}

TEST(StoresChoice, TheFasterOneIsKeptAndCachedBeforeItIsKnown) {
  StoresChoice choice;
  EXPECT_FALSE(choice.figures().measured);
  EXPECT_EQ(choice.figures().stores, Stores::cached);
  look(choice, {1000, 500});
  EXPECT_TRUE(choice.figures().measured);
  EXPECT_NEAR(choice.figures().cached_gib_per_second, 1e9 / (1 << 30), 1e-9);
  EXPECT_NEAR(choice.figures().streaming_gib_per_second, 2e9 / (1 << 30), 1e-9);
  for (unsigned i = 0; i < StoresChoice::kCopiesBetweenLooks; ++i) {
    const auto copy = choice.next();
    ASSERT_EQ(copy.stores, Stores::streaming);
    ASSERT_FALSE(copy.counts);
  }
  EXPECT_EQ(choice.next().stores, Stores::cached) << "it is looked at again";
  EXPECT_EQ(choice.figures().stores, Stores::streaming) << "which is what holds meanwhile";
}

TEST(StoresChoice, AMachineThatChangesIsFollowed) {
  StoresChoice choice;
  look(choice, {1000, 500});
  for (unsigned i = 0; i < StoresChoice::kCopiesBetweenLooks; ++i) choice.next();
  look(choice, {1000, 1500});
  EXPECT_EQ(choice.figures().stores, Stores::cached);
}

TEST(StoresChoice, CachedMayBeFavoured) {
  for (const unsigned favour : {0u, 10u})
    for (const std::uint64_t streaming : {1001, 950, 890}) {
      StoresChoice choice;
      look(choice, {1000, streaming}, favour);
      const bool streams = streaming < 1000 && (favour == 0 || streaming < 900);
      EXPECT_EQ(choice.figures().stores, streams ? Stores::streaming : Stores::cached) << favour << ' ' << streaming;
    }
}

TEST(StoresChoice, TheFirstOfARowAndAFewThatWereInterruptedDoNotCount) {
  StoresChoice choice;
  for (unsigned i = 0; i < StoresChoice::kCopiesOfALook; ++i) {
    const auto copy = choice.next();
    EXPECT_EQ(copy.counts, i % StoresChoice::kInARow >= StoresChoice::kInARow / 2);
    const bool streaming = copy.stores == Stores::streaming, interrupted = copy.counts && i % 4 == 0;
    choice.took(copy, 1000, !copy.counts ? 1 : interrupted ? 1'000'000 : streaming ? 900 : 1000, 0);
  }
  EXPECT_EQ(choice.figures().stores, Stores::streaming);
  EXPECT_NEAR(choice.figures().cached_gib_per_second, 1e9 / (1 << 30), 1e-9);
}

}  // namespace
}  // namespace cistern::staging
