// A thread keeps the memory of its freed large blocks for the next ones: little of it, and not for long.
#include "pool/heap/kept_spans.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "pool/base/registered_memory.hpp"
#include "tests/support/child.hpp"
#include "tests/support/host_pool.hpp"
#include "tests/support/random.hpp"
#include "tests/support/worker.hpp"

namespace cistern::host_pool {
namespace {

using test::get;
using test::in_child;
using test::in_new_thread;
using test::put;
using test::Worker;

constexpr std::size_t kBytes = 200'000, kMost = kKeptSlicesMax * kSliceBytes;

std::uint64_t in_use() { return region_figures().in_use_bytes; }

TEST(HostKeptSpans, TheNextBlockOfTheLengthGetsTheMemory) {
  in_new_thread([] {
    void* const small = get(100);  // a heap
    void* const block = get(kBytes);
    void* const other = get(kBytes + kSliceBytes);
    const std::uint64_t before = in_use();
    EXPECT_EQ(put(block), Freed::yes);
    EXPECT_EQ(put(other), Freed::yes);
    EXPECT_EQ(in_use(), before);
    EXPECT_FALSE(is_live(block));
    EXPECT_TRUE(whereabouts(block).free);
    EXPECT_EQ(put(block), Freed::invalid);
    EXPECT_EQ(get(kBytes + 1), block);
    std::memset(block, 7, kBytes);
    EXPECT_EQ(put(block), Freed::yes);
    void* const zeroed = allocate_zeroed(kBytes);
    EXPECT_EQ(zeroed, block);
    EXPECT_TRUE(test::is_zero(zeroed, kBytes));
    EXPECT_EQ(put(zeroed), Freed::yes);
    EXPECT_EQ(put(small), Freed::yes);
  });
}

TEST(HostKeptSpans, AMebibyteOfAThreadIsKeptAtMost) {
  in_child([] {
    put(get(100));
    trim(0);
    const std::uint64_t before = in_use();
    for (const std::size_t bytes : {kBytes, kMost, kMost + 1, std::size_t{70'000}}) {
      std::vector<void*> blocks;
      for (int i = 0; i < 30; ++i) blocks.push_back(get(bytes));
      EXPECT_EQ(std::set<void*>(blocks.begin(), blocks.end()).size(), 30u);
      for (void* const block : blocks) ASSERT_EQ(put(block), Freed::yes);
      EXPECT_LE(in_use(), before + kMost);
    }
    EXPECT_GT(in_use(), before);
    trim(0);
    EXPECT_EQ(in_use(), before);
    EXPECT_EQ(test::region_fault(), "");
  });
}

TEST(HostKeptSpans, EndedAndForkedAwayThreadsLeaveNone) {
  in_child([] {
    trim(0);
    const std::uint64_t before = in_use();
    Worker worker;
    worker.run([] {
      put(get(100));
      put(get(kBytes));
    });
    EXPECT_GE(in_use(), before + kBytes);
    if (!CISTERN_TEST_TSAN)
      in_child([&] {
        in_new_thread([] { put(get(100)); });
        trim(0);
        EXPECT_EQ(in_use(), before);
        EXPECT_EQ(test::region_fault(), "");
      });
    worker.end();
    trim(0);
    EXPECT_EQ(in_use(), before);
  });
}

TEST(HostKeptSpans, MemoryThatIsRegisteredIsNotKept) {
  in_child([] {
    put(get(100));
    void* const block = get(kBytes);
    note_registered(block, 100);
    const std::uint64_t before = in_use();
    EXPECT_EQ(put(block), Freed::yes);
    EXPECT_LT(in_use(), before);
  });
}

TEST(HostKeptSpans, WhereMemoryRunsOutTheyGo) {
  in_child([] {
    void* const small = get(100);
    trim(0);
    void* const block = get(kMost);
    region_system.map = [](void*, std::size_t) { return false; };
    while (acquire_span(1).first) {
    }
    EXPECT_EQ(put(block), Freed::yes);
    std::vector<void*> blocks;  // pages of blocks, and large blocks of another length
    for (int i = 0; i < 3; ++i) blocks.push_back(get(70'000));
    for (int i = 0; i < 100; ++i) blocks.push_back(get(1024));
    for (void* const one : blocks) EXPECT_TRUE(one);
    EXPECT_EQ(put(small), Freed::yes);
  });
}

// A block that may grow into the memory behind it does.
TEST(HostKeptSpans, TheyAreInNoBlocksWay) {
  in_child([] {
    put(get(100));
    trim(0);
    void* const block = get(4 * kSliceBytes);
    void* const behind = get(4 * kSliceBytes);
    if (static_cast<char*>(block) + 4 * kSliceBytes != behind) GTEST_SKIP() << "others lie between";
    EXPECT_EQ(put(behind), Freed::yes);
    EXPECT_EQ(reallocate(block, 8 * kSliceBytes), block);
    EXPECT_EQ(put(block), Freed::yes);
  });
}

}  // namespace
}  // namespace cistern::host_pool
