// RangeIndex: what is inside a range, and what is only near, against a model.
#include "pool/base/range_index.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/support/random.hpp"

namespace cistern {
namespace {

using Index = RangeIndex<int>;

TEST(RangeIndexTest, ARangeReachesFromItsFirstByteToItsLast) {
  Index index;
  index.insert(1000, 100, 7);
  EXPECT_FALSE(index.find(999));
  for (std::uintptr_t inside : {1000, 1050, 1099}) {
    auto range = index.find(inside);
    ASSERT_TRUE(range) << inside;
    EXPECT_EQ(range->first, 1000u);
    EXPECT_EQ(range->bytes, 100u);
    EXPECT_EQ(range->value, 7);
  }
  EXPECT_FALSE(index.find(1100));
  EXPECT_FALSE(index.find(0));
  EXPECT_FALSE(index.find(~std::uintptr_t{0}));
}

TEST(RangeIndexTest, NeighboursDoNotMix) {
  Index index;
  index.insert(1000, 100, 1);
  index.insert(1100, 100, 2);
  EXPECT_EQ(index.find(1099)->value, 1);
  EXPECT_EQ(index.find(1100)->value, 2);
  index.erase(1000);
  EXPECT_FALSE(index.find(1099));
  EXPECT_EQ(index.find(1199)->value, 2);
  index.erase(1050);
  EXPECT_TRUE(index.find(1100)) << "only a range's first byte erases it";
}

TEST(RangeIndexTest, TheSameFirstByteAgainReplaces) {
  Index index;
  index.insert(1000, 100, 1);
  index.insert(1000, 10, 2);
  EXPECT_EQ(index.find(1009)->value, 2);
  EXPECT_FALSE(index.find(1010));
}

TEST(RangeIndexTest, RangesAtTheEndsOfTheAddressSpace) {
  Index index;
  index.insert(0, 16, 1);
  index.insert(~std::uintptr_t{0} - 15, 16, 2);
  EXPECT_EQ(index.find(0)->value, 1);
  EXPECT_FALSE(index.find(16));
  EXPECT_EQ(index.find(~std::uintptr_t{0})->value, 2);
  EXPECT_FALSE(index.find(~std::uintptr_t{0} - 16));
}

TEST(RangeIndexTest, ChangesTheRangeThatIsThereOrANewOne) {
  RangeIndex<int> index;
  const auto count = [](int& value) { ++value; };
  index.change(100, 10, count);
  index.change(100, 5, count);
  ASSERT_TRUE(index.find(109));
  EXPECT_EQ(index.find(109)->value, 2);
  index.change(100, 20, count);
  EXPECT_EQ(index.find(119).value().value, 3);
  index.erase_if(100, [](int& value) { return --value == 0; });
  EXPECT_EQ(index.find(100).value().value, 2);
}

TEST(RangeIndexTest, AnEmptyRangeContainsNothingAndClearForgets) {
  Index index;
  index.insert(1000, 0, 1);
  EXPECT_FALSE(index.find(1000));
  index.insert(2000, 10, 2);
  index.clear();
  EXPECT_FALSE(index.find(2000));
  index.before_fork();
  index.after_fork();
  EXPECT_FALSE(index.find(2000));
}

TEST(RangeIndexTest, AgreesWithAModelOverRandomSteps) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  constexpr std::uintptr_t kCells = 64, kCellBytes = 16;
  Index index;
  std::vector<std::uint64_t> model(kCells, 0);  // bytes of the range that begins at a cell, at most the cell's
  for (int step = 0; step < 50'000; ++step) {
    const std::uintptr_t cell = random() % kCells;
    if (random() % 2)
      index.insert(cell * kCellBytes, model[cell] = random() % (kCellBytes + 1), static_cast<int>(cell));
    else
      index.erase(cell * kCellBytes), model[cell] = 0;
    const std::uintptr_t asked = random() % (kCells * kCellBytes);
    const bool inside = asked % kCellBytes < model[asked / kCellBytes];
    auto found = index.find(asked);
    ASSERT_EQ(found.has_value(), inside) << "step " << step << ", address " << asked;
    ASSERT_TRUE(!found || found->value == static_cast<int>(asked / kCellBytes));
  }
}

TEST(RangeIndexTest, ThreadsEachFindTheirOwn) {
  Index index;
  std::atomic<int> errors{0};
  const auto work = [&](int id) {
    const std::uintptr_t base = static_cast<std::uintptr_t>(id + 1) << 32;
    for (std::uintptr_t i = 0; i < 5000; ++i) {
      index.insert(base + i * 64, 64, id);
      auto found = index.find(base + i * 64 + 63);
      if (!found || found->value != id) ++errors;
      if (i % 2) index.erase(base + i * 64);
    }
    for (std::uintptr_t i = 0; i < 5000; ++i)
      if (index.find(base + i * 64).has_value() == (i % 2 != 0)) ++errors;
  };
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; ++id) threads.emplace_back(work, id);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(errors, 0);
}

}  // namespace
}  // namespace cistern
