// Blocks as a program gets them: aligned, of at least the size asked for, zero where promised, resized with their
// contents, and null where there can be none.
#include "pool/heap/blocks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "pool/base/page_size.hpp"
#include "pool/base/registered_memory.hpp"
#include "pool/heap/medium.hpp"
#include "tests/support/child.hpp"
#include "tests/support/host_pool.hpp"
#include "tests/support/random.hpp"
#include "tests/support/told_page_size.hpp"

namespace cistern::host_pool {
namespace {

using test::get;
using test::in_new_thread;
using test::Live;
using test::live_now;
using test::live_since;
using test::put;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kSizes[] = {1,     15,    16,       17,   64,       65,           128,     129,   1000,
                                  1024,  1025,  4096,     8192, 8193,     20000,        32768,   32769, 65536,
                                  65537, 70000, kMiB - 1, kMiB, 2 * kMiB, 3 * kMiB + 5, 5 * kMiB};

TEST(HostBlocksTest, UsableBytesAreAllTheBlocksOwn) {
  const Live before = live_now();
  std::vector<void*> blocks;
  for (const std::size_t bytes : kSizes)
    for (int i = 0; i < 3; ++i) {
      blocks.push_back(get(bytes));
      ASSERT_TRUE(blocks.back());
      ASSERT_EQ(address_of(blocks.back()) % 16, 0u);
      ASSERT_GE(usable_bytes(blocks.back()), bytes);
      EXPECT_TRUE(is_live(blocks.back()));
      test::fill(blocks.back(), usable_bytes(blocks.back()), blocks.size());
    }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_TRUE(test::is_filled(blocks[i], usable_bytes(blocks[i]), i + 1));
    EXPECT_EQ(put(blocks[i]), Freed::yes);
  }
  EXPECT_EQ(live_since(before), Live{});
}

TEST(HostBlocksTest, NothingAskedForIsABlockToo) {
  void* const one = get(0);
  void* const other = allocate_zeroed(0);
  void* const aligned = allocate_aligned(64, 0);
  EXPECT_TRUE(one && other && aligned && one != other && other != aligned && one != aligned);
  for (void* block : {one, other, aligned}) EXPECT_EQ(put(block), Freed::yes);
}

TEST(HostBlocksTest, EveryAlignmentUpToAGibibyte) {
  test::in_child([] {
    const Live before = live_now();
    for (std::size_t alignment = 1; alignment <= 1024 * kMiB; alignment *= 2) {
      std::vector<void*> blocks;
      for (const std::size_t bytes :
           {std::size_t{0}, std::size_t{1}, std::size_t{100}, std::size_t{5000}, std::size_t{33000}, 3 * kMiB}) {
        if (alignment > 64 * kMiB && blocks.size() > 2) break;
        void* const block = allocate_aligned(alignment, bytes);
        ASSERT_TRUE(block) << alignment << ' ' << bytes;
        EXPECT_EQ(address_of(block) % alignment, 0u);
        EXPECT_GE(usable_bytes(block), bytes);
        test::fill(block, bytes, alignment + bytes);
        blocks.push_back(block);
      }
      for (void* block : blocks) EXPECT_EQ(put(block), Freed::yes);
    }
    EXPECT_EQ(live_since(before), Live{});
    EXPECT_EQ(test::region_fault(), "");
  });
}

TEST(HostBlocksTest, ImpossibleSizesAreNull) {
  const Live before = live_now();
  const std::uint64_t mapped = region_figures().mapped_bytes;
  constexpr std::size_t kMost = PTRDIFF_MAX;
  void* const block = get(1000);
  void* const large = get(3 * kMiB);
  test::fill(block, 1000, 3);
  test::fill(large, 3 * kMiB, 4);
  for (const std::size_t bytes :
       {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 15, SIZE_MAX - 4096, SIZE_MAX - kSliceBytes, SIZE_MAX - kSliceBytes + 1,
        kMost, kMost + 1, kMost - 1, kMost - 4096, kMost - kSliceBytes, SIZE_MAX / 2 + kSliceBytes, SIZE_MAX / 4,
        std::size_t{1} << 48, std::size_t{1} << 47, (std::size_t{1} << 47) - kSliceBytes}) {
    EXPECT_EQ(get(bytes), nullptr) << bytes;
    EXPECT_EQ(allocate_zeroed(bytes), nullptr) << bytes;
    for (const std::size_t alignment : {std::size_t{16}, std::size_t{32}, std::size_t{4096}, std::size_t{65536},
                                        1024 * kMiB, std::size_t{1} << 46, std::size_t{1} << 62, std::size_t{1} << 63})
      EXPECT_EQ(allocate_aligned(alignment, bytes), nullptr) << alignment << ' ' << bytes;
    EXPECT_EQ(reallocate(block, bytes), nullptr) << bytes;
    EXPECT_EQ(reallocate(large, bytes), nullptr) << bytes;
  }
  for (const std::size_t alignment : {std::size_t{1} << 47, std::size_t{1} << 62, std::size_t{1} << 63})
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{40000}})
      EXPECT_EQ(allocate_aligned(alignment, bytes), nullptr) << alignment;
  EXPECT_TRUE(test::is_filled(block, 1000, 3));
  EXPECT_TRUE(test::is_filled(large, 3 * kMiB, 4));
  EXPECT_EQ(usable_bytes(large), (3 * kMiB));
  EXPECT_EQ(put(block), Freed::yes);
  EXPECT_EQ(put(large), Freed::yes);
  EXPECT_EQ(live_since(before), Live{});
  EXPECT_LE(region_figures().mapped_bytes, mapped + 8 * kMiB);
  EXPECT_EQ(test::region_fault(), "");
}

TEST(HostBlocksTest, ZeroedMemoryIsZeroWhateverWasThere) {
  const Live before = live_now();
  for (const std::size_t bytes : kSizes)
    for (const bool trimmed : {false, true}) {
      std::array<void*, 6> blocks;
      for (void*& block : blocks) {
        block = get(bytes);
        std::memset(block, 0xff, usable_bytes(block));
      }
      for (void* block : blocks) ASSERT_EQ(put(block), Freed::yes);
      if (trimmed) trim_region(0);
      for (void*& block : blocks) {
        block = allocate_zeroed(bytes);
        ASSERT_TRUE(test::is_zero(block, bytes)) << bytes;
        std::memset(block, 0xff, usable_bytes(block));
      }
      for (void* block : blocks) ASSERT_EQ(put(block), Freed::yes);
    }
  EXPECT_EQ(live_since(before), Live{});
}

TEST(HostBlocksTest, ContentsSurviveEveryChangeOfSize) {
  const Live before = live_now();
  for (const std::size_t from : kSizes)
    for (const std::size_t to : kSizes) {
      void* const block = get(from);
      test::fill(block, from, from * 31 + to);
      void* const resized = reallocate(block, to);
      ASSERT_TRUE(resized);
      ASSERT_GE(usable_bytes(resized), to);
      ASSERT_TRUE(test::is_filled(resized, from, from * 31 + to, std::min(from, to))) << from << " to " << to;
      test::fill(resized, to, 1);
      if (resized != block) {
        ASSERT_FALSE(is_live(block) && from > kSmallMax && to > kSmallMax) << from << " to " << to;
      }
      Live one;
      test::count_block(one, resized, 1);
      ASSERT_EQ(live_since(before), one) << from << " to " << to;
      ASSERT_EQ(put(resized), Freed::yes);
    }
  EXPECT_EQ(live_since(before), Live{});
  EXPECT_EQ(test::region_fault(), "");
}

TEST(HostBlocksTest, LargeBlocksShrinkAndGrowInPlace) {
  void* const block = get(8 * kMiB);
  test::fill(block, 8 * kMiB, 9);
  EXPECT_EQ(reallocate(block, kMiB), block);
  EXPECT_EQ(usable_bytes(block), kMiB);
  EXPECT_EQ(reallocate(block, 4 * kMiB + 1), block);  // the memory behind it is free
  EXPECT_GE(usable_bytes(block), 4 * kMiB + 1);
  EXPECT_TRUE(test::is_filled(block, 8 * kMiB, 9, kMiB));
  // Within the last slice nothing moves.
  EXPECT_EQ(reallocate(block, 4 * kMiB + 8192), block);
  EXPECT_EQ(reallocate(block, 4 * kMiB), block);
  EXPECT_EQ(put(block), Freed::yes);
  EXPECT_EQ(test::region_fault(), "");
}

// A system that refuses what is no whole page.
constinit std::size_t strict_page = 0;
constinit unsigned refused = 0, asked = 0;
System lenient_system;
bool is_whole(const void* at, std::size_t bytes) {
  ++asked;
  const bool whole = (address_of(at) | bytes) % strict_page == 0;
  refused += !whole;
  return whole;
}
System strict_system() {
  System strict = lenient_system = region_system;
  strict.map = [](void* at, std::size_t bytes) { return is_whole(at, bytes) && lenient_system.map(at, bytes); };
  strict.unmap = [](void* at, std::size_t bytes) { return is_whole(at, bytes) && lenient_system.unmap(at, bytes); };
  strict.give_back = [](void* at, std::size_t bytes) {
    if (is_whole(at, bytes)) lenient_system.give_back(at, bytes);
  };
  strict.move = [](void* from, void* to, std::size_t bytes) {
    return is_whole(from, bytes) && is_whole(to, bytes) && lenient_system.move(from, to, bytes);
  };
  return strict;
}

TEST(HostBlocksTest, LargeBlocksEndWithAPageOfTheSystem) {
  for (const std::size_t page : {std::size_t{4} << 10, std::size_t{16} << 10, std::size_t{64} << 10})
    test::in_child([page] {
      const test::ToldPageSize told(page);
      strict_page = page;
      replace_system(strict_system());
      std::vector<void*> blocks;
      for (std::size_t bytes = kSmallMax + 1; bytes < 6 * kMiB; bytes += bytes / 3) {
        void* const block = get(bytes);
        EXPECT_EQ(usable_bytes(block), whole_pages(bytes));
        test::fill(block, bytes, 1);
        blocks.push_back(reallocate(block, bytes * 2));
        EXPECT_TRUE(test::is_filled(blocks.back(), bytes, 1));
      }
      for (void* const block : blocks) EXPECT_EQ(put(block), Freed::yes);
      trim(0);
      EXPECT_GT(asked, 0u);
      EXPECT_EQ(refused, 0u);
    });
}

TEST(HostBlocksTest, SmallBlocksStayUntilHalfOfThemIsUnused) {
  void* const block = get(1024);
  EXPECT_EQ(reallocate(block, 512), block);
  EXPECT_EQ(reallocate(block, 1024), block);
  void* const moved = reallocate(block, 100);
  EXPECT_NE(moved, block);
  EXPECT_LT(usable_bytes(moved), 512u);
  EXPECT_EQ(put(moved), Freed::yes);
}

TEST(HostBlocksTest, AllocationsDoNotCountMoves) {
  const Account before = account();
  void* block = get(10);
  for (const std::size_t bytes : kSizes) block = reallocate(block, bytes);
  EXPECT_EQ(account().allocations() - before.allocations(), 1u);
  EXPECT_GT(account().moves, before.moves);
  EXPECT_EQ(put(block), Freed::yes);
  EXPECT_EQ(account().allocations() - before.allocations(), 1u);
}

// --- Moving pages instead of copying
int moves, moves_to_refuse;
System real_system;

void intercept_moves(int refuse) {
  real_system = region_system;
  moves = 0;
  moves_to_refuse = refuse;
  region_system.move = [](void* from, void* to, std::size_t bytes) {
    ++moves;
    return moves_to_refuse-- <= 0 && real_system.move(from, to, bytes);
  };
}

// Grows a block from `from` to `to` bytes where it cannot grow in place.
void grow_moving(std::size_t from, std::size_t to) {
  void* const block = get(from);
  const Slice end = static_cast<Slice>(slice_number(static_cast<char*>(block) + from + kSliceBytes - 1));
  const bool blocked = extend_span(end, 1);
  test::fill(block, from, from + to);
  void* const grown = reallocate(block, to);
  ASSERT_TRUE(grown);
  EXPECT_NE(grown, block);
  EXPECT_TRUE(test::is_filled(grown, from, from + to));
  std::memset(static_cast<char*>(grown) + from, 1, to - from);
  // The pages left behind are memory like any other.
  void* const again = get(from);
  std::memset(again, 2, from);
  EXPECT_TRUE(test::is_filled(grown, from, from + to));
  EXPECT_EQ(put(again), Freed::yes);
  EXPECT_EQ(put(grown), Freed::yes);
  if (blocked) release_span(end, 1);
}

TEST(HostBlocksTest, LargeBlocksMoveTheirPages) {
  test::in_child([] {
    intercept_moves(0);
    trim_region(0);
    grow_moving(3 * kMiB + 12345, 9 * kMiB);
    EXPECT_EQ(moves, 1);
    grow_moving(kMiB, 2 * kMiB);  // copied: it is quicker
    EXPECT_EQ(moves, 1);
    trim_region(0);
    moves = 0;
    moves_to_refuse = 1;
    grow_moving(4 * kMiB, 9 * kMiB);  // refused: copied
    EXPECT_EQ(moves, 1);
    EXPECT_EQ(test::region_fault(), "");
  });
}

// --- Blocks with memory that the program registered or locked
struct GivenBack {
  const void* at;
  std::size_t bytes;
};
std::vector<GivenBack> given_back;
std::vector<GivenBack> mapped_anew;

void watch_pages() {
  real_system = region_system;
  given_back.clear();
  mapped_anew.clear();
  region_system.give_back = [](void* at, std::size_t bytes) {
    given_back.push_back({at, bytes});
    real_system.give_back(at, bytes);
  };
  region_system.renew = [](void* at, std::size_t bytes) {
    mapped_anew.push_back({at, bytes});
    return real_system.renew(at, bytes);
  };
}

bool is_zero(const void* memory, std::size_t bytes) {
  const auto* const from = static_cast<const char*>(memory);
  return std::all_of(from, from + bytes, [](char byte) { return byte == 0; });
}

TEST(HostBlocksTest, ARegisteredBlockLosesItsPagesBeforeItIsFree) {
  test::in_child([] {
    watch_pages();
    void* const block = get(5 * kMiB);
    test::fill(block, 5 * kMiB, 1);
    note_registered(static_cast<char*>(block) + kMiB, 100);
    const std::uint64_t dirty = region_figures().dirty_bytes;
    EXPECT_EQ(put(block), Freed::yes);
    ASSERT_EQ(given_back.size(), 1u);
    EXPECT_EQ(given_back[0].at, block);
    EXPECT_EQ(given_back[0].bytes, 5 * kMiB);
    EXPECT_EQ(region_figures().dirty_bytes, dirty);
    void* const again = allocate_zeroed(5 * kMiB);
    EXPECT_TRUE(is_zero(again, 5 * kMiB));
    EXPECT_EQ(put(again), Freed::yes);
    forget_registered(static_cast<char*>(block) + kMiB, 100);
    given_back.clear();
    void* const other = get(5 * kMiB);
    EXPECT_EQ(put(other), Freed::yes);
    EXPECT_TRUE(given_back.empty()) << "nothing is registered";
    EXPECT_EQ(test::region_fault(), "");
  });
}

TEST(HostBlocksTest, ARegisteredBlockIsNotResizedUnheard) {
  test::in_child([] {
    watch_pages();
    trim_region(0);
    void* const block = get(4 * kMiB);
    test::fill(block, 4 * kMiB, 3);
    note_registered(block, 4 * kMiB);
    given_back.clear();
    EXPECT_EQ(reallocate(block, kMiB), block);
    ASSERT_EQ(given_back.size(), 1u);
    EXPECT_EQ(given_back[0].at, static_cast<char*>(block) + kMiB);
    EXPECT_EQ(given_back[0].bytes, 3 * kMiB);
    given_back.clear();
    void* const grown = reallocate(block, 2 * kMiB);  // there is room behind it
    EXPECT_NE(grown, block);
    EXPECT_TRUE(test::is_filled(grown, kMiB, 3));
    ASSERT_EQ(given_back.size(), 1u);
    EXPECT_EQ(given_back[0].at, block);
    EXPECT_EQ(put(grown), Freed::yes);
    EXPECT_EQ(test::region_fault(), "");
  });
}

TEST(HostBlocksTest, LockedPagesDoNotMove) {
  test::in_child([] {
    intercept_moves(0);
    trim_region(0);
    void* const block = get(3 * kMiB);
    note_locked(block, 1);
    test::fill(block, 3 * kMiB, 5);
    const Slice end = static_cast<Slice>(slice_number(static_cast<char*>(block) + 3 * kMiB));
    const bool blocked = extend_span(end, 1);
    void* const grown = reallocate(block, 9 * kMiB);
    EXPECT_NE(grown, block);
    EXPECT_EQ(moves, 0);
    EXPECT_TRUE(test::is_filled(grown, 3 * kMiB, 5));
    EXPECT_FALSE(registered_in(block, 9 * kMiB)) << "the lock ended with the block";
    EXPECT_EQ(put(grown), Freed::yes);
    if (blocked) release_span(end, 1);
    EXPECT_EQ(test::region_fault(), "");
  });
}

TEST(HostBlocksTest, WithFewSystemCallsARegisteredBlockIsMappedAnew) {
  test::in_child([] {
    use_few_system_calls();
    watch_pages();
    void* const block = get(2 * kMiB);
    std::memset(block, 1, 2 * kMiB);
    note_registered(block, kMiB);
    mapped_anew.clear();
    EXPECT_EQ(put(block), Freed::yes);
    EXPECT_TRUE(given_back.empty());
    ASSERT_EQ(mapped_anew.size(), 1u);
    EXPECT_EQ(mapped_anew[0].at, block);
    EXPECT_TRUE(is_zero(block, 2 * kMiB));
    EXPECT_EQ(test::region_fault(), "");
  });
}

TEST(HostBlocksTest, RegisteredHugePagesStay) {
  test::in_child([] {
    watch_pages();
    void* const block = get(2 * kMiB);
    note_registered(block, kMiB);
    region_system.unit_bytes = 2 * kMiB;
    region_system.keeps_pages = true;
    EXPECT_EQ(put(block), Freed::yes);
    EXPECT_TRUE(given_back.empty() && mapped_anew.empty());
    EXPECT_EQ(test::region_fault(), "");
  });
}

// Pages that moved are mappings of their own: blocks that lie across several are moved as well, or copied.
TEST(HostBlocksTest, BlocksAcrossMappingsThatMovedKeepTheirContents) {
  test::in_child([] {
    trim_region(0);
    for (std::size_t step = 0; step < 40; ++step)
      grow_moving(2 * kMiB + step % 7 * 3 * kSliceBytes, (5 + step % 5) * kMiB);
    grow_moving(40 * kMiB, 50 * kMiB);
    EXPECT_EQ(test::region_fault(), "");
  });
}

// Where it grows by much and resident memory is there, that is used: moving would leave it idle.
TEST(HostBlocksTest, ABlockThatGrowsByMuchIsCopiedIntoResidentMemory) {
  test::in_child([] {
    intercept_moves(0);
    for (const bool by_much : {true, false}) {
      moves = 0;
      put(get(64 * kMiB));  // after any other test, there is memory that is not resident for all of it
      trim_region(0);
      void* const resident = get(9 * kMiB);
      void* const block = get(7 * kMiB);
      const Slice end = static_cast<Slice>(slice_number(static_cast<char*>(block) + 7 * kMiB));
      extend_span(end, 1);
      test::fill(block, 7 * kMiB, 1);
      EXPECT_EQ(put(resident), Freed::yes);
      const std::uint64_t dirty = region_figures().dirty_bytes;
      const std::size_t bytes = by_much ? 9 * kMiB : 8 * kMiB;
      void* const grown = reallocate(block, bytes);
      EXPECT_TRUE(test::is_filled(grown, 7 * kMiB, 1));
      EXPECT_EQ(moves, by_much ? 0 : 1);
      EXPECT_EQ(grown == resident, by_much);
      // The memory that was moved from is not resident, so it doesn't count as resident.
      EXPECT_EQ(region_figures().dirty_bytes, by_much ? dirty - 2 * kMiB : dirty);
      EXPECT_EQ(test::region_fault(), "");
    }
  });
}

// Clean memory promised to be zero that once was moved from or to.
TEST(HostBlocksTest, MovedMemoryIsZeroedLikeOther) {
  test::in_child([] {
    for (int round = 0; round < 5; ++round) {
      grow_moving(4 * kMiB, 9 * kMiB);
      for (const std::size_t bytes : {2 * kMiB, 4 * kMiB, 9 * kMiB}) {
        if (round % 2) trim_region(0);
        void* const block = allocate_zeroed(bytes);
        EXPECT_TRUE(test::is_zero(block, bytes));
        std::memset(block, 3, bytes);
        EXPECT_EQ(put(block), Freed::yes);
      }
    }
  });
}

// Where memory is resident in part, only that part is written.
TEST(HostBlocksTest, ZeroedMemoryThatIsNotResidentStaysSo) {
  test::in_child([] {
    trim_region(0);
    void* const whole = get(30 * kMiB);
    const Slice first = static_cast<Slice>(slice_number(whole));
    EXPECT_EQ(reallocate(whole, 10 * kMiB), whole);
    trim_region(0);
    std::memset(whole, 3, 10 * kMiB);
    EXPECT_EQ(put(whole), Freed::yes);
    void* const block = allocate_zeroed(25 * kMiB);
    ASSERT_EQ(block, slice_memory(first));
    std::vector<unsigned char> resident(25 * kMiB / page_bytes());
    ASSERT_EQ(mincore(block, 25 * kMiB, resident.data()), 0);
    EXPECT_EQ(std::count_if(resident.begin(), resident.end(), [](unsigned char page) { return page & 1; }),
              10 * kMiB / page_bytes());
    EXPECT_TRUE(test::is_zero(block, 25 * kMiB));
    EXPECT_EQ(put(block), Freed::yes);
  });
}

// --- Growing by little
TEST(HostBlocksTest, ABlockThatGrowsByLittleAgainGetsRoom) {
  in_new_thread([] {
    void* block = get(112);
    block = reallocate(block, 113);
    EXPECT_EQ(usable_bytes(block), 128u);  // once: no room
    block = reallocate(block, 129);
    EXPECT_EQ(usable_bytes(block), 160u);
    EXPECT_EQ(put(block), Freed::yes);
    block = get(1000);
    for (const std::size_t bytes : {1200, 1500, 1900}) {  // one that grows by much gets none
      block = reallocate(block, bytes);
      EXPECT_EQ(usable_bytes(block), class_bytes(class_of(bytes)));
    }
    EXPECT_EQ(put(block), Freed::yes);

    int moves = 0;
    block = nullptr;
    for (std::size_t bytes = 1; bytes < 20000; bytes += 17) {
      void* const grown = block ? reallocate(block, bytes) : get(bytes);
      moves += grown != block;
      block = grown;
      EXPECT_LT(usable_bytes(block), bytes + bytes / 2 + 64);
      std::memset(block, 1, bytes);
    }
    EXPECT_LT(moves, 40);
    const std::size_t usable = usable_bytes(block);
    block = reallocate(block, usable / 2 - 1);  // a block that shrinks gives back
    EXPECT_LT(usable_bytes(block), usable);
    EXPECT_EQ(put(block), Freed::yes);
  });
}

TEST(HostBlocksTest, ABlockKeepsItsPlaceWhereItsSizeAllows) {
  in_new_thread([] {
    for (const std::size_t bytes : {std::size_t{100}, std::size_t{1024}, std::size_t{1500}, kSmallMax}) {
      void* const block = get(bytes);
      const std::size_t usable = usable_bytes(block);
      for (const std::size_t fits : {usable, usable - 1, usable / 2}) EXPECT_TRUE(keeps_place(block, fits));
      for (const std::size_t does_not : {std::size_t{0}, usable / 2 - 1, usable + 1, SIZE_MAX})
        EXPECT_FALSE(keeps_place(block, does_not));
      EXPECT_FALSE(keeps_place(static_cast<char*>(block) + 16, usable));
      in_new_thread([&] { EXPECT_TRUE(keeps_place(block, usable)); });
      EXPECT_EQ(put(block), Freed::yes);
      EXPECT_FALSE(keeps_place(block, usable));
    }
    void* const large = get(kSmallMax + 1);
    EXPECT_FALSE(keeps_place(large, kSmallMax + 1));
    EXPECT_EQ(put(large), Freed::yes);
    EXPECT_FALSE(keeps_place(nullptr, 1));
    EXPECT_FALSE(keeps_place(&large, 1));
  });
}

}  // namespace
}  // namespace cistern::host_pool
