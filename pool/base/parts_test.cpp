// A set of ranges beside a set of bits.
#include "pool/base/parts.hpp"

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
Bits bits_of(const Parts& parts) {
  Bits bits;
  std::size_t last = 0;
  bool first = true;
  for (const Range& range : parts) {
    EXPECT_LT(range.begin, range.end);
    EXPECT_TRUE(first || range.begin > last);
    bits |= bits_of(range);
    last = range.end;
    first = false;
  }
  return bits;
}

TEST(PartsTest, AreASetOfNumbers) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  Parts parts;
  Bits model;
  for (int step = 0; step < 20'000; ++step) {
    const std::size_t begin = random() % kNumbers, end = begin + random() % (random() % 20 ? 12 : kNumbers);
    const Range range{begin, std::min(end, kNumbers)};
    if (random() % 2) {
      parts.add(range);
      model |= bits_of(range);
    } else {
      parts.remove(range);
      model &= ~bits_of(range);
    }
    ASSERT_EQ(bits_of(parts), model);
    ASSERT_EQ(parts.empty(), model.none());
    const Range part{random() % kNumbers, random() % kNumbers};
    ASSERT_EQ(bits_of(parts.within(part)), model & bits_of(part));
    ASSERT_EQ(bits_of(parts.without(part)), model & ~bits_of(part));
    const std::size_t from = random() % kNumbers;
    std::size_t next = from;
    while (next < kNumbers && !model[next]) ++next;
    const Range found = parts.next(from);
    ASSERT_EQ(found.begin == found.end, next == kNumbers);
    ASSERT_TRUE(next == kNumbers || found.begin == next);
  }
}

TEST(PartsTest, ThatTouchAreOne) {
  Parts parts({0, 10});
  parts.add({20, 30});
  parts.add({10, 20});
  EXPECT_EQ(parts, Parts({0, 30}));
  parts.add({5, 5});
  parts.remove({31, 31});
  EXPECT_EQ(parts, Parts({0, 30}));
}

}  // namespace
}  // namespace cistern
