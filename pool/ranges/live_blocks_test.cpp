// The table of live blocks against a std::map, with a printed seed.
#include "pool/ranges/live_blocks.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "tests/support/random.hpp"

namespace cistern::ranges {
namespace {

TEST(LiveBlocks, AreTheMap) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE("CISTERN_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  LiveBlocks blocks;
  std::map<std::uint64_t, Extent> map;
  EXPECT_EQ(blocks.find(512), nullptr);
  for (int step = 0; step < 200'000; ++step) {
    // Blocks side by side, so that many have one place in the table; now and then nearly all go.
    const std::uint64_t first = 512 * (1 + random() % 4096);
    const auto found = map.find(first);
    ASSERT_EQ(blocks.find(first), found == map.end() ? nullptr : &found->second);
    if (found != map.end()) {
      blocks.erase(first);
      map.erase(found);
    } else if (step / 10'000 % 2 || random() % 8 == 0) {
      Extent& extent = map[first];
      extent.first = first;
      blocks.insert(&extent);
    }
    ASSERT_EQ(blocks.count(), map.size());
  }
  for (auto& [first, extent] : map) ASSERT_EQ(blocks.find(first), &extent);
}

}  // namespace
}  // namespace cistern::ranges
