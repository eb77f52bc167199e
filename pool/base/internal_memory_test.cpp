// The tables' own memory: what there is of it when the system has none left.
#include "pool/base/internal_memory.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/support/child.hpp"

namespace cistern {
namespace {

constexpr std::size_t kBlock = 16 << 10, kChunk = 256 << 10;

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

}  // namespace
}  // namespace cistern
