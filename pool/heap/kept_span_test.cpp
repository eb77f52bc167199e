// A thread that frees large blocks of one length keeps the memory of the last one for the next.
#include "pool/heap/kept_span.hpp"

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

// The second free of the length, from which on one is kept.
void begin_to_keep(std::size_t bytes) {
  put(get(100));  // a heap
  put(get(bytes));
  put(get(bytes));
}

TEST(HostKeptSpan, TheNextBlockOfTheLengthGetsIt) {
  in_child([] {
    trim(0);
    begin_to_keep(kBytes);
    void* const block = get(kBytes);
    const std::uint64_t before = in_use();
    EXPECT_EQ(put(block), Freed::yes);
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
    trim(0);
    EXPECT_LE(in_use() + kBytes, before);
    EXPECT_EQ(test::region_fault(), "");
  });
}

TEST(HostKeptSpan, OneIsKeptAndNoneThatIsNotWantedNext) {
  in_child([] {
    put(get(100));
    trim(0);
    const std::uint64_t before = in_use();
    put(get(kBytes));
    EXPECT_EQ(in_use(), before);  // this length was not freed before
    std::vector<void*> blocks;
    for (int i = 0; i < 30; ++i) blocks.push_back(get(kBytes));
    EXPECT_EQ(std::set<void*>(blocks.begin(), blocks.end()).size(), 30u);
    for (void* const block : blocks) ASSERT_EQ(put(block), Freed::yes);
    EXPECT_EQ(in_use(), before + 4 * kSliceBytes);
    void* const other = get(kBytes + kSliceBytes);
    EXPECT_EQ(in_use(), before + 5 * kSliceBytes);
    EXPECT_EQ(put(other), Freed::yes);
    for (int i = 0; i < 3; ++i) put(get(kMost + 1));
    EXPECT_EQ(in_use(), before);
    EXPECT_EQ(test::region_fault(), "");
  });
}

TEST(HostKeptSpan, EndedAndForkedAwayThreadsLeaveNone) {
  in_child([] {
    trim(0);
    const std::uint64_t before = in_use();
    Worker worker;
    worker.run([] { begin_to_keep(kBytes); });
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

TEST(HostKeptSpan, MemoryThatIsRegisteredIsNotKept) {
  in_child([] {
    begin_to_keep(kBytes);
    void* const block = get(kBytes);
    note_registered(block, 100);
    const std::uint64_t before = in_use();
    EXPECT_EQ(put(block), Freed::yes);
    EXPECT_LT(in_use(), before);
  });
}

TEST(HostKeptSpan, WhereMemoryRunsOutItGoes) {
  in_child([] {
    trim(0);
    begin_to_keep(kMost);
    void* const block = get(kMost);
    region_system.map = [](void*, std::size_t) { return false; };
    while (acquire_span(1).first) {
    }
    EXPECT_EQ(put(block), Freed::yes);
    std::vector<void*> blocks;
    for (int i = 0; i < 100; ++i) blocks.push_back(get(1024));
    for (int i = 0; i < 3; ++i) blocks.push_back(get(70'000));
    for (void* const one : blocks) EXPECT_TRUE(one);
  });
}

// A block that may grow into the memory behind it does.
TEST(HostKeptSpan, ItIsInNoBlocksWay) {
  in_child([] {
    trim(0);
    begin_to_keep(4 * kSliceBytes);
    std::vector<void*> blocks{get(4 * kSliceBytes)};
    void* block = nullptr;
    void* behind = blocks[0];
    do {  // until they are neighbours
      ASSERT_LT(blocks.size(), 1000u);
      block = behind;
      blocks.push_back(behind = get(4 * kSliceBytes));
    } while (static_cast<char*>(block) + 4 * kSliceBytes != behind);
    EXPECT_EQ(put(behind), Freed::yes);
    EXPECT_EQ(reallocate(block, 8 * kSliceBytes), block);
    EXPECT_EQ(put(block), Freed::yes);
  });
}

}  // namespace
}  // namespace cistern::host_pool
