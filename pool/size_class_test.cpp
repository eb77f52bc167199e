// Size classes: how much a chunk wastes, and that classes are few, ordered and stable.
#include "pool/size_class.hpp"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/random.hpp"

namespace cistern {
namespace {

TEST(SizeClassTest, EverySizeUpToAMebibyte) {
  std::uint64_t before = 0;
  for (std::uint64_t bytes = 1; bytes <= 1 << 20; ++bytes) {
    const std::uint64_t chunk = chunk_bytes_for(bytes);
    ASSERT_GE(chunk, bytes);
    ASSERT_GE(chunk, before) << "not monotone at " << bytes;
    ASSERT_EQ(chunk % 512, 0u);
    ASSERT_EQ(chunk_bytes_for(chunk), chunk) << "a chunk is of its own class";
    ASSERT_TRUE(bytes > 4096 || chunk - bytes < 512) << bytes;
    ASSERT_TRUE(bytes <= 4096 || (chunk - bytes) * 9 <= chunk) << "more than 1/9 of " << chunk << " is waste";
    before = chunk;
  }
}

TEST(SizeClassTest, EightPerDoublingUpToTheLargest) {
  for (int doubling = 12; doubling < 62; ++doubling) {
    const std::uint64_t low = std::uint64_t{1} << doubling;
    std::set<std::uint64_t> classes;
    for (std::uint64_t eighth = 0; eighth < 8; ++eighth) {
      const std::uint64_t limit = low + eighth * (low / 8);
      classes.insert(chunk_bytes_for(limit + 1));
      EXPECT_EQ(chunk_bytes_for(limit), limit);
      EXPECT_EQ(chunk_bytes_for(limit + 1), limit + low / 8);
    }
    EXPECT_EQ(classes.size(), 8u);
  }
}

TEST(SizeClassTest, RandomSizesAreOrderedAndWasteAtMostANinth) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 200'000; ++i) {
    const std::uint64_t a = 1 + (random() >> (2 + random() % 52)), b = 1 + (random() >> (2 + random() % 52));
    const std::uint64_t chunk = chunk_bytes_for(a);
    ASSERT_GE(chunk, a);
    ASSERT_TRUE(a > b || chunk <= chunk_bytes_for(b)) << a << " and " << b;
    ASSERT_TRUE(a <= 4096 || chunk - a <= chunk / 9) << a;
  }
}

TEST(SizeClassTest, ReportClassesAreOrderedAndNamed) {
  int before = 0;
  for (int bit = 0; bit < 40; ++bit)
    for (std::uint64_t bytes :
         {(std::uint64_t{1} << bit) - 1, std::uint64_t{1} << bit, (std::uint64_t{1} << bit) + 1}) {
      const int id = report_class(bytes);
      ASSERT_GE(id, before);
      ASSERT_LT(id, kReportClasses);
      ASSERT_STRNE(report_class_name(id), "");
      before = id;
    }
  EXPECT_EQ(before, kReportClasses - 1);
}

}  // namespace
}  // namespace cistern
