// Layout of the host pool: the classes hold what they are asked for with bounded waste, and one multiplication tells
// the starts of blocks from everything else.
#include "pool/heap/layout.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <vector>

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

// --- Groups of classes
unsigned class_here(std::size_t bytes) { return this_heap()->class_of_bytes[bytes]; }

// In a thread with a heap that no other thread had: others wait meanwhile with those that are there.
void in_new_heap(const std::function<void()>& body) {
  const unsigned first_new = heaps_end();
  test::in_new_thread([&] {
    ASSERT_EQ(deallocate(allocate(1)), Freed::yes);
    this_heap()->id >= first_new ? body() : in_new_heap(body);
  });
}

TEST(HostLayoutTest, AHeapBeginsWithOneClassForEachGroup) {
  in_new_heap([] {
    std::set<unsigned> classes;
    for (std::size_t bytes = 0; bytes <= kDirectMax; ++bytes) {
      ASSERT_EQ(class_here(bytes), class_of_group(class_of(bytes))) << bytes;
      ASSERT_LE(bytes, class_bytes(class_here(bytes)));
      classes.insert(class_here(bytes));
    }
    EXPECT_EQ(classes.size(), 12u);
  });
}

TEST(HostLayoutTest, AGroupIsDividedWhenItNeedsASecondSystemPage) {
  in_new_heap([] {
    std::vector<void*> blocks;
    for (int i = 0; i < 4096 / 192 - 1; ++i) blocks.push_back(allocate(150));
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(deallocate(allocate(170)), Freed::yes);  // few at a time need no more
    for (void* block : blocks) EXPECT_EQ(usable_bytes(block), 192u);
    EXPECT_EQ(class_here(150), class_of(192));
    for (int i = 0; i < 3; ++i) blocks.push_back(allocate(150));
    EXPECT_EQ(usable_bytes(blocks.back()), 160u);
    for (std::size_t bytes = 129; bytes <= 192; ++bytes) EXPECT_EQ(class_here(bytes), class_of(bytes)) << bytes;
    EXPECT_EQ(class_here(200), class_of(256));  // of another group
    EXPECT_EQ(class_here(128), class_of(128));
    EXPECT_EQ(class_here(100), class_of(128));
    for (void* block : blocks) EXPECT_EQ(deallocate(block), Freed::yes);
    EXPECT_EQ(test::region_fault(), "");
  });
}

}  // namespace
}  // namespace cistern::host_pool
