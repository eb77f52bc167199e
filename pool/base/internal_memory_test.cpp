// The tables' own memory: what there is of it when the system has none left.
#include "pool/base/internal_memory.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

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

}  // namespace
}  // namespace cistern
