// Layout of the host pool: the classes hold what they are asked for with bounded waste, and one multiplication tells
// the starts of blocks from everything else.
#include "pool/heap/layout.hpp"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/host_pool.hpp"
#include "tests/support/random.hpp"

namespace cistern::host_pool {
namespace {

TEST(HostLayoutTest, EverySizeMapsToTheSmallestClassThatHoldsIt) {
  for (std::size_t bytes = 0; bytes <= kSmallMax; ++bytes) {
    const unsigned id = class_of(bytes);
    ASSERT_LT(id, kClasses) << bytes;
    ASSERT_GE(class_bytes(id), bytes);
    if (id > 0) {
      ASSERT_LT(class_bytes(id - 1), bytes) << bytes;
    }
  }
}

TEST(HostLayoutTest, WasteIsUnderAGranuleThenUnderAnEighth) {
  for (std::size_t bytes = 1; bytes <= kSmallMax; ++bytes) {
    const std::size_t waste = class_bytes(class_of(bytes)) - bytes;
    if (bytes <= 128) {
      ASSERT_LT(waste, kGranule) << bytes;
    } else {
      ASSERT_LT(waste * 8, bytes) << bytes;
    }
  }
}

TEST(HostLayoutTest, ClassesAreGranulesApartAndAscend) {
  for (unsigned id = 0; id < kClasses; ++id) {
    EXPECT_EQ(class_bytes(id) % kGranule, 0u) << id;
    EXPECT_EQ(class_of(class_bytes(id)), id);
    if (id > 0) {
      EXPECT_GT(class_bytes(id), class_bytes(id - 1));
    }
  }
}

TEST(HostLayoutTest, PagesHoldAtLeastEightBlocksAndWasteLittle) {
  for (unsigned id = 0; id < kClasses; ++id) {
    const std::size_t page = page_slices(id) * kSliceBytes;
    const std::size_t used = page_capacity(id) * class_bytes(id);
    EXPECT_GE(page_capacity(id), 8u) << id;
    EXPECT_LE(used, page) << id;
    EXPECT_LT(page - used, class_bytes(id)) << id;
    EXPECT_LT((page - used) * 8, page) << id;
  }
}

// Blocks of a class lie at its multiples, so what a power of two divides is aligned to it.
TEST(HostLayoutTest, EveryAlignmentUpToTheLargestClassHasAClass) {
  for (std::size_t alignment = kGranule; alignment <= kSmallMax; alignment *= 2) {
    EXPECT_EQ(class_bytes(class_of(alignment)), alignment);
    EXPECT_EQ(kSliceBytes % alignment, 0u);
  }
}

TEST(HostLayoutTest, OneComparisonTellsStartsOfBlocksThatExist) {
  for (unsigned id = 0; id < kClasses && page_slices(id) == 1; ++id) {
    const std::size_t bytes = class_bytes(id);
    const unsigned capacity = page_capacity(id);
    const std::uint32_t inverse = inverse_of(bytes);
    for (const unsigned carved : std::set<unsigned>{0, 1, 2, capacity / 2, capacity - 1, capacity}) {
      const std::uint32_t bound = start_bound(bytes, carved);
      std::size_t wrong = 0;
      for (std::uint32_t offset = 0; offset < kSliceBytes; ++offset)
        wrong += (offset * inverse < bound) != (offset % bytes == 0 && offset / bytes < carved);
      ASSERT_EQ(wrong, 0u) << bytes << " bytes, " << carved << " carved";
    }
  }
}

TEST(HostLayoutTest, OneComparisonTellsStartsForEveryCarvedCount) {
  for (unsigned id = 0; id < kClasses && page_slices(id) == 1; ++id) {
    const std::size_t bytes = class_bytes(id);
    const std::uint32_t inverse = inverse_of(bytes);
    for (unsigned carved = 0; carved <= page_capacity(id); ++carved) {
      const std::uint32_t bound = start_bound(bytes, carved);
      // The edges: the last block that exists, the first that does not, and right beside them.
      for (const int beside : {-1, 0, 1})
        for (const unsigned block : {0u, carved / 2, carved ? carved - 1 : 0, carved}) {
          const std::int64_t offset = std::int64_t{block} * static_cast<std::int64_t>(bytes) + beside;
          if (offset < 0 || offset >= static_cast<std::int64_t>(kSliceBytes)) continue;
          ASSERT_EQ(static_cast<std::uint32_t>(offset) * inverse < bound, beside == 0 && block < carved)
              << bytes << " bytes, " << carved << " carved, offset " << offset;
        }
    }
  }
}

TEST(HostLayoutTest, TheFastPathsTableIsTheClasses) {
  test::in_new_thread([] {
    void* const block = allocate(1);
    ASSERT_TRUE(block && this_heap());
    EXPECT_EQ(deallocate(block), Freed::yes);
    for (std::size_t bytes = 0; bytes <= kDirectMax; ++bytes)
      ASSERT_EQ(this_heap()->class_of_bytes[bytes], class_of(bytes)) << bytes;
  });
}

}  // namespace
}  // namespace cistern::host_pool
