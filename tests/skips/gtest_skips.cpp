// One GoogleTest program with every kind of skip, for skips_tests.py.
#include <gtest/gtest.h>

TEST(Skips, Pass) {}
TEST(Skips, WithAReason) { GTEST_SKIP() << "no such\ndevice"; }
TEST(Skips, WithoutAReason) { GTEST_SKIP(); }
TEST(Skips, DISABLED_ForGood) { FAIL(); }

class InSetUp : public testing::Test {
 protected:
  void SetUp() override { GTEST_SKIP() << "not here"; }
};
TEST_F(InSetUp, NeverRuns) { FAIL(); }
