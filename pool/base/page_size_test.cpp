// The system's page size is read, and what is rounded follows it.
#include "pool/base/page_size.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/told_page_size.hpp"

namespace cistern {
namespace {

TEST(PageSize, IsTheSystems) {
  EXPECT_EQ(page_size::read(), static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(page_bytes(), page_size::read());
}

TEST(PageSize, RoundingFollowsIt) {
  for (const std::size_t bytes : {std::size_t{4} << 10, std::size_t{16} << 10, std::size_t{64} << 10}) {
    const test::ToldPageSize told(bytes);
    EXPECT_EQ(page_bytes(), bytes);
    EXPECT_EQ(page_begin(3 * bytes), 3 * bytes);
    EXPECT_EQ(page_begin(4 * bytes - 1), 3 * bytes);
    EXPECT_EQ(whole_pages(0), 0u);
    EXPECT_EQ(whole_pages(1), bytes);
    EXPECT_EQ(whole_pages(bytes), bytes);
    EXPECT_EQ(whole_pages(bytes + 1), 2 * bytes);
  }
}

}  // namespace
}  // namespace cistern
