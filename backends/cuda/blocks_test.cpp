// Records of blocks whose addresses are cut and given again.
#include "backends/cuda/blocks.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace cistern::cuda {
namespace {

constexpr std::uintptr_t kFirst = 0x10000;
constexpr std::uint64_t kPart = 4096;

constexpr std::uint32_t kLife = 7;

Context& context() {
  static const Functions functions{};
  static CallGate gate;
  static Context of(functions, gate);
  return of;
}

Block* put_former(Blocks& blocks, std::uintptr_t first, std::uint64_t bytes, std::uint32_t epoch = kLife) {
  Block* const block = blocks.make();
  block->bytes = bytes;
  block->context = &context();
  block->epoch = epoch;
  block->is_former = true;
  blocks.put(block, first);
  return block;
}
Block* claim(Blocks& blocks, std::uintptr_t first, std::uint64_t bytes) {
  return blocks.claim(first, bytes, &context(), kLife);
}

TEST(Blocks, TheRecordOfTheSameAddressesComesBack) {
  Blocks blocks;
  put_former(blocks, kFirst, kPart);
  Block* const former = blocks.table.find(kFirst);
  EXPECT_EQ(claim(blocks, kFirst, 2 * kPart), nullptr);
  EXPECT_EQ(blocks.table.find(kFirst), nullptr);
  put_former(blocks, kFirst, kPart);
  EXPECT_EQ(claim(blocks, kFirst, kPart), former) << "records are used again";
}

// Two threads get the two halves of what one freed block had. One of them forgets its record and uses it for its own
// half, while the other looks whether it is the record of its half.
TEST(Blocks, ARecordThatIsUsedAgainMeanwhileIsNotOfTheOtherHalf) {
  Blocks blocks;
  put_former(blocks, kFirst, 2 * kPart);
  Block* const seen = blocks.table.find(kFirst);
  EXPECT_EQ(claim(blocks, kFirst + kPart, kPart), nullptr);
  put_former(blocks, kFirst + kPart, kPart);
  ASSERT_EQ(blocks.table.find(kFirst + kPart), seen) << "records are used again";
  EXPECT_FALSE(Blocks::lay_at(*seen, kFirst, kPart));
  EXPECT_TRUE(Blocks::lay_at(*seen, kFirst + kPart, kPart));
}

// The driver gives the addresses of a context that ended to another one. Its records are still to be accounted for.
TEST(Blocks, RecordsOfAnotherLifeAreNoBlocksOfThisOne) {
  Blocks blocks;
  Block* const same = put_former(blocks, kFirst, kPart, kLife - 1);
  Block* const live = put_former(blocks, kFirst + kPart, kPart, kLife - 1);
  live->is_former = false;
  live->state = BlockState::live;
  EXPECT_EQ(claim(blocks, kFirst, kPart), nullptr);
  EXPECT_EQ(blocks.table.find(kFirst), same) << "it is not forgotten";
  Block* const now = put_former(blocks, kFirst, kPart);
  EXPECT_EQ(blocks.table.find(kFirst), now);
  EXPECT_EQ(claim(blocks, kFirst + kPart, kPart), nullptr);
  EXPECT_EQ(live->state.load(), BlockState::live);
  std::vector<const Block*> displaced;
  blocks.for_each_displaced([&](const Block& block) { displaced.push_back(&block); });
  EXPECT_EQ(displaced, std::vector<const Block*>{same});
}

}  // namespace
}  // namespace cistern::cuda
