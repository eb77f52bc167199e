// Records of blocks whose addresses are cut and given again.
#include "backends/cuda/blocks.hpp"

#include <gtest/gtest.h>

namespace cistern::cuda {
namespace {

constexpr std::uintptr_t kFirst = 0x10000;
constexpr std::uint64_t kPart = 4096;

void put_former(Blocks& blocks, std::uintptr_t first, std::uint64_t bytes) {
  Block* const block = blocks.make();
  block->bytes = bytes;
  blocks.put(block, first);
}

TEST(Blocks, TheRecordOfTheSameAddressesComesBack) {
  Blocks blocks;
  put_former(blocks, kFirst, kPart);
  Block* const former = blocks.table.find(kFirst);
  EXPECT_EQ(blocks.claim(kFirst, 2 * kPart), nullptr);
  EXPECT_EQ(blocks.table.find(kFirst), nullptr);
  put_former(blocks, kFirst, kPart);
  EXPECT_EQ(blocks.claim(kFirst, kPart), former) << "records are used again";
}

// Two threads get the two halves of what one freed block had. One of them forgets its record and uses it for its own
// half, while the other looks whether it is the record of its half.
TEST(Blocks, ARecordThatIsUsedAgainMeanwhileIsNotOfTheOtherHalf) {
  Blocks blocks;
  put_former(blocks, kFirst, 2 * kPart);
  Block* const seen = blocks.table.find(kFirst);
  EXPECT_EQ(blocks.claim(kFirst + kPart, kPart), nullptr);
  put_former(blocks, kFirst + kPart, kPart);
  ASSERT_EQ(blocks.table.find(kFirst + kPart), seen) << "records are used again";
  EXPECT_FALSE(Blocks::lay_at(*seen, kFirst, kPart));
  EXPECT_TRUE(Blocks::lay_at(*seen, kFirst + kPart, kPart));
}

}  // namespace
}  // namespace cistern::cuda
