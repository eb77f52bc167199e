// A set of ranges beside a set of bits.
#include "pool/base/ranges.hpp"

#include <gtest/gtest.h>

#include <bitset>
#include <random>

namespace cistern {
namespace {

constexpr std::size_t kNumbers = 200;
using Bits = std::bitset<kNumbers>;

Bits bits_of(Range range) {
  Bits bits;
  for (std::size_t i = range.begin; i < range.end; ++i) bits.set(i);
  return bits;
}

// Apart from each other, in order, and none empty.
Bits bits_of(const Ranges& ranges) {
  Bits bits;
  std::size_t last = 0;
  bool first = true;
  for (const Range& range : ranges) {
    EXPECT_LT(range.begin, range.end);
    EXPECT_TRUE(first || range.begin > last);
    bits |= bits_of(range);
    last = range.end;
    first = false;
  }
  return bits;
}

TEST(RangesTest, AreASetOfNumbers) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  Ranges ranges;
  Bits model;
  for (int step = 0; step < 20'000; ++step) {
    const std::size_t begin = random() % kNumbers, end = begin + random() % (random() % 20 ? 12 : kNumbers);
    const Range range{begin, std::min(end, kNumbers)};
    if (random() % 2) {
      ranges.add(range);
      model |= bits_of(range);
    } else {
      ranges.remove(range);
      model &= ~bits_of(range);
    }
    ASSERT_EQ(bits_of(ranges), model);
    ASSERT_EQ(ranges.empty(), model.none());
    const Range part{random() % kNumbers, random() % kNumbers};
    ASSERT_EQ(bits_of(ranges.within(part)), model & bits_of(part));
    ASSERT_EQ(bits_of(ranges.without(part)), model & ~bits_of(part));
    const std::size_t from = random() % kNumbers;
    std::size_t next = from;
    while (next < kNumbers && !model[next]) ++next;
    const Range found = ranges.next(from);
    ASSERT_EQ(found.begin == found.end, next == kNumbers);
    ASSERT_TRUE(next == kNumbers || found.begin == next);
  }
}

TEST(RangesTest, ThatTouchAreOne) {
  Ranges ranges({0, 10});
  ranges.add({20, 30});
  ranges.add({10, 20});
  EXPECT_EQ(ranges, Ranges({0, 30}));
  ranges.add({5, 5});
  ranges.remove({31, 31});
  EXPECT_EQ(ranges, Ranges({0, 30}));
}

}  // namespace
}  // namespace cistern
