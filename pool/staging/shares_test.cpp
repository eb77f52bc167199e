// Copies of one thread: every alignment and size, boxes of any pitch in any order of their shares, and nothing beside
// them is touched.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "pool/staging/box.hpp"
#include "pool/staging/streaming_copy.hpp"
#include "tests/support/random.hpp"

namespace cistern::staging {
namespace {

constexpr char kGuard = '\x5a';
// There is one thread here.
#if defined(__SANITIZE_THREAD__)
constexpr int kSlower = 13;
#else
constexpr int kSlower = 1;
#endif

std::vector<char> random_bytes(std::mt19937& random, std::size_t bytes) {
  std::vector<char> made(bytes);
  for (char& one : made) one = static_cast<char>(random());
  return made;
}

TEST(StreamingCopy, AllAlignmentsAndSizesAreRightAndNothingElseIsWritten) {
  constexpr std::size_t kAlignments = 65, kSizes = 301, kSpace = 64 + kAlignments + kSizes + 64;
  std::mt19937 random(1);
  const std::vector<char> source = random_bytes(random, kSpace);
  const std::vector<char> guard(64, kGuard);
  alignas(64) static char memory[kSpace];
  for (const Stores stores : {Stores::cached, Stores::streaming})
    for (std::size_t to = 0; to < kAlignments; ++to)
      for (std::size_t from = 0; from < kAlignments; from += kSlower)
        for (std::size_t bytes = 0; bytes < kSizes; ++bytes) {
          char* const at = memory + 64 + to;
          std::memset(at - 64, kGuard, bytes + 128);
          streaming_copy(at, source.data() + from, bytes, stores);
          ASSERT_TRUE(std::memcmp(at, source.data() + from, bytes) == 0 &&
                      std::memcmp(at - 64, guard.data(), 64) == 0 && std::memcmp(at + bytes, guard.data(), 64) == 0)
              << bytes << " bytes from " << from << " to " << to;
        }
}

TEST(StreamingCopy, LargeOnesToo) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const std::vector<char> source = random_bytes(random, 256 << 10);
  for (int round = 0; round < 200 / kSlower; ++round) {
    const std::size_t from = random() % 5000, to = random() % 5000, bytes = random() % (source.size() - from);
    std::vector<char> memory(to + bytes + 64, kGuard), expected = memory;
    std::copy_n(source.begin() + static_cast<long>(from), bytes, expected.begin() + static_cast<long>(to));
    streaming_copy(memory.data() + to, source.data() + from, bytes, Stores::streaming);
    ASSERT_TRUE(memory == expected);
  }
}

TEST(Shares, OfAnyBoxCopyItAllInAnyOrderAndNothingElse) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 2000 / kSlower; ++round) {
    const Box box = {random() % 400, random() % 8, random() % 5};
    const auto pitches = [&](auto& side) {
      side.row_pitch = box.row_bytes + random() % 3 * (random() % 30);
      side.slice_pitch = side.row_pitch * box.rows + random() % 3 * (random() % 30);
      return side.slice_pitch * box.slices;
    };
    Side to{};
    ConstSide from{};
    const std::vector<char> source = random_bytes(random, pitches(from) + 1);
    std::vector<char> memory(pitches(to) + 1, kGuard), expected = memory;
    from.base = source.data(), to.base = memory.data();
    for (std::size_t slice = 0; slice < box.slices; ++slice)
      for (std::size_t row = 0; row < box.rows; ++row)
        for (std::size_t at = 0; at < box.row_bytes; ++at)
          expected[slice * to.slice_pitch + row * to.row_pitch + at] =
              source[slice * from.slice_pitch + row * from.row_pitch + at];
    const Shares shares(to, from, box, 1 + random() % 300);
    ASSERT_EQ(shares.bytes(), box.row_bytes * box.rows * box.slices);
    std::vector<std::size_t> order(shares.count());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t share : order) shares.copy(share, random() % 2 ? Stores::cached : Stores::streaming);
    ASSERT_TRUE(memory == expected) << box.row_bytes << " x " << box.rows << " x " << box.slices;
    std::fill(memory.begin(), memory.end(), kGuard);
    shares.copy_all(Stores::streaming);
    ASSERT_TRUE(memory == expected) << box.row_bytes << " x " << box.rows << " x " << box.slices;
  }
}

TEST(Shares, KeepShortRowsWholeCutLongOnesAndJoinThoseWithoutGaps) {
  static char memory[1 << 16];
  const auto count = [](const Box& box, std::size_t pitch, std::size_t slice_pitch) {
    return Shares({memory, pitch, slice_pitch}, {memory, pitch, slice_pitch}, box, 1024).count();
  };
  EXPECT_EQ(count({0}, 0, 0), 0u);
  EXPECT_EQ(count({100, 0}, 100, 0), 0u);
  EXPECT_EQ(count({1}, 0, 0), 1u);
  EXPECT_EQ(count({1024}, 0, 0), 1u);
  EXPECT_EQ(count({1025}, 0, 0), 2u);
  EXPECT_EQ(count({300, 9}, 400, 0), 3u) << "three rows each";
  EXPECT_EQ(count({300, 9}, 300, 0), 3u) << "one row of 2,700 bytes";
  EXPECT_EQ(count({2000, 3}, 2048, 0), 6u);
  EXPECT_EQ(count({256, 4, 4}, 256, 1024), 4u) << "all in a row";
  EXPECT_EQ(count({256, 2, 4}, 256, 1024), 2u) << "slices of 512 bytes, two each";
}

}  // namespace
}  // namespace cistern::staging
