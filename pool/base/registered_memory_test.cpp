// What the program registered or locked is found by any byte of it, until that ends.
#include "pool/base/registered_memory.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>

#include "tests/support/child.hpp"
#include "tests/support/told_page_size.hpp"

namespace cistern {
namespace {

constexpr std::size_t kPage = 4096;

// Never touched: only addresses count.
const char* at(std::uintptr_t page) { return reinterpret_cast<const char*>((page + (1 << 20)) * kPage); }

TEST(RegisteredMemoryTest, NothingIsByDefault) {
  test::in_child([] {
    EXPECT_FALSE(registered_in(at(0), kPage));
    forget_registered(at(0), kPage);
    forget_locked(at(0), kPage);
    forget_all_locked();
    EXPECT_FALSE(registered_in(nullptr, SIZE_MAX));
    EXPECT_TRUE(may_be_moved(at(0), kPage));
  });
}

TEST(RegisteredMemoryTest, EveryOverlapIsFoundUntilTheLastEnds) {
  test::in_child([] {
    note_registered(at(2) + 100, kPage);
    note_registered(at(10), kPage);
    EXPECT_TRUE(registered_in(at(0), 16 * kPage).registered);
    EXPECT_FALSE(registered_in(at(0), 16 * kPage).locked);
    EXPECT_TRUE(registered_in(at(3), kPage));
    EXPECT_TRUE(registered_in(at(3) + 99, 1));
    EXPECT_FALSE(registered_in(at(3) + 100, kPage));
    EXPECT_FALSE(registered_in(at(2), 100));
    forget_registered(at(2) + 100, kPage);
    EXPECT_FALSE(registered_in(at(2), 2 * kPage));
    EXPECT_TRUE(registered_in(at(0), 16 * kPage));
    forget_registered(at(10), kPage);
    EXPECT_FALSE(registered_memory::any);
  });
}

TEST(RegisteredMemoryTest, LocksAreOfWholePages) {
  test::in_child([] {
    note_locked(at(4) + 10, kPage);
    note_registered(at(5), kPage);
    EXPECT_TRUE(registered_in(at(4), 1).locked);
    EXPECT_TRUE(registered_in(at(5) + kPage - 1, 1).locked);
    EXPECT_FALSE(registered_in(at(6), kPage));
    EXPECT_FALSE(may_be_moved(at(4), kPage));
    forget_locked(at(4), kPage);
    EXPECT_FALSE(registered_in(at(4), kPage));
    EXPECT_TRUE(registered_in(at(5), kPage).locked);
    forget_all_locked();
    EXPECT_FALSE(registered_in(at(5), kPage).locked);
    EXPECT_TRUE(registered_in(at(5), kPage).registered);
    EXPECT_TRUE(may_be_moved(at(5), kPage));
  });
}

TEST(RegisteredMemoryTest, AllMemoryMayBeLocked) {
  test::in_child([] {
    note_all_locked(false);
    EXPECT_TRUE(registered_in(at(7), kPage).locked);
    forget_locked(at(7), kPage);
    EXPECT_FALSE(registered_in(at(7), kPage));
    EXPECT_TRUE(registered_in(at(8), kPage));
    note_all_locked(true);
    EXPECT_FALSE(registered_in(at(8), kPage)) << "the next block there is to be locked, too";
    EXPECT_FALSE(may_be_moved(at(8), kPage));
    forget_all_locked();
    EXPECT_FALSE(registered_in(at(8), kPage));
    EXPECT_TRUE(may_be_moved(at(8), kPage));
  });
}

// A thread that frees may hold a lock of the C library that the forking one waits for.
TEST(RegisteredMemoryTest, ALockIsForgottenWithoutWaitingForAFork) {
  test::in_child([] {
    note_locked(at(4), kPage);
    registered_memory_before_fork();
    std::thread([] { forget_locked(at(4), kPage); }).join();
    registered_memory_after_fork();
    EXPECT_TRUE(registered_in(at(4), kPage).locked) << "nobody could forget it";
    forget_locked(at(4), kPage);
    EXPECT_FALSE(registered_memory::any);
  });
}

TEST(RegisteredMemoryTest, AChildHasNoneOfIt) {
  test::in_child([] {
    note_registered(at(1), kPage);
    note_locked(at(2), kPage);
    registered_memory_before_fork();
    EXPECT_TRUE(registered_in(at(9), kPage)) << "what cannot be asked is taken to be registered";
    registered_memory_after_fork();
    EXPECT_FALSE(registered_in(at(9), kPage));
    registered_memory_before_fork();
    registered_memory_after_fork_in_child();
    EXPECT_FALSE(registered_in(at(0), 16 * kPage));
  });
}

TEST(RegisteredMemoryTest, LocksAreOfTheSystemsPages) {
  test::in_child([] {
    constexpr std::size_t kLargePage = 16 * kPage;
    const test::ToldPageSize told(kLargePage);
    note_locked(at(16) + 100, 1);
    EXPECT_TRUE(registered_in(at(16), 1).locked);
    EXPECT_TRUE(registered_in(at(31) + kPage - 1, 1).locked);
    EXPECT_FALSE(registered_in(at(15), kPage));
    EXPECT_FALSE(registered_in(at(32), kPage));
    forget_locked(at(20), kPage);
    EXPECT_FALSE(registered_in(at(16), kLargePage));
  });
}

}  // namespace
}  // namespace cistern
