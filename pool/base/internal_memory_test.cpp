// The tables' own memory: what there is of it when the system has none left.
#include "pool/base/internal_memory.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>

#include "tests/support/child.hpp"
#include "tests/support/told_page_size.hpp"

namespace cistern {
namespace {

constexpr std::size_t kBlock = 16 << 10, kLargest = 64 << 10, kChunk = 256 << 10;

TEST(InternalMemory, HasAChunkToSpareWhenTheSystemHasNone) {
  test::in_child([] {
    for (std::size_t bytes = 0; bytes <= 2 * kChunk; bytes += kBlock) ASSERT_TRUE(internal_try_allocate(kBlock));
    const rlimit none{0, RLIM_INFINITY};
    ASSERT_EQ(setrlimit(RLIMIT_AS, &none), 0);
    std::size_t left = 0;
    while (internal_try_allocate(kBlock)) left += kBlock;
    EXPECT_GE(left, kChunk);
    EXPECT_LT(left, 2 * kChunk);
  });
}

TEST(InternalMemory, LargeBlocksAreWholePages) {
  test::in_child([] {
    for (const std::size_t page : {std::size_t{4} << 10, std::size_t{16} << 10, std::size_t{64} << 10}) {
      const test::ToldPageSize told(page);
      struct Looked {
        std::uintptr_t block;
        std::size_t bytes;
      } looked{reinterpret_cast<std::uintptr_t>(internal_allocate(kLargest + 1)), 0};
      const auto look = [](void* context, std::uintptr_t first, std::size_t bytes) {
        auto& at = *static_cast<Looked*>(context);
        if (first == at.block) at.bytes = bytes;
      };
      visit_internal_memory(look, &looked);
      EXPECT_EQ(looked.bytes, kLargest + page);
      internal_deallocate(reinterpret_cast<void*>(looked.block), kLargest + 1);
    }
  });
}

TEST(InternalMemory, ZeroedBlocksTakeNoMemoryUntilTheyAreWritten) {
  test::in_child([] {
    constexpr std::size_t kPage = 4096;
    auto* const block = static_cast<unsigned char*>(internal_try_allocate_zeroed(kLargest));
    ASSERT_TRUE(block);
    unsigned char* const pages = block + (kPage - reinterpret_cast<std::uintptr_t>(block) % kPage) % kPage;
    unsigned char resident[kLargest / kPage - 1] = {};
    ASSERT_EQ(mincore(pages, sizeof resident * kPage, resident), 0);
    EXPECT_EQ(std::count(std::begin(resident), std::end(resident), 0), std::ssize(resident));
    std::memset(block, 0xff, kLargest);
    internal_deallocate(block, kLargest);
    ASSERT_EQ(internal_try_allocate_zeroed(kLargest), block);
    EXPECT_EQ(std::count(block, block + kLargest, 0), static_cast<std::ptrdiff_t>(kLargest));
  });
}

TEST(InternalMemory, BlocksOfAnySizeLieApartAndComeBack) {
  test::in_child([] {
    unsigned char* last = nullptr;
    for (std::size_t bytes = 0; bytes <= kLargest; bytes += 1 + bytes / 9) {
      auto* const block = static_cast<unsigned char*>(internal_allocate(bytes));
      auto* const behind = static_cast<unsigned char*>(internal_allocate(bytes));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 16, 0u) << bytes;
      EXPECT_NE(block, last) << bytes;
      EXPECT_TRUE(behind >= block + bytes || behind + bytes <= block) << bytes;
      internal_deallocate(block, bytes);
      EXPECT_EQ(internal_allocate(bytes), block) << bytes;
      last = block;
    }
  });
}

}  // namespace
}  // namespace cistern
