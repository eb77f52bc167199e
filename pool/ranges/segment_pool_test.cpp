// The segment pool over a fake source: against the model of blocks and of who may use what was freed, with each call
// failing, out of memory, and from several threads.
#include "pool/ranges/segment_pool.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/fake_segments.hpp"
#include "tests/support/other_thread.hpp"
#include "tests/support/random.hpp"
#include "tests/support/range_model.hpp"

namespace cistern::ranges {
namespace {

using test::FakeSegments;
using Pool = SegmentPool<FakeSegments>;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

std::uint64_t address(const Pool::Answer& answer) {
  EXPECT_TRUE(answer.ok) << answer.error;
  return answer.first;
}

TEST(SegmentPool, CutsAndJoinsSegments) {
  FakeSegments source;
  Pool pool(source, {});
  std::vector<std::uint64_t> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(address(pool.allocate(kMiB / 4, kAnyOrder)));
  EXPECT_EQ(pool.figures().acquires, 1u);
  for (const int i : {0, 2, 4, 6, 1, 3, 5, 7}) ASSERT_TRUE(pool.deallocate(blocks[i], kAnyOrder, {}, false));
  EXPECT_EQ(pool.figures().largest_free, 2 * kMiB);
}

TEST(SegmentPool, GrowsByAPartOfWhatIsUsed) {
  FakeSegments source;
  Pool pool(source, {});
  for (int i = 0; i < 1'000; ++i) address(pool.allocate(4 * kMiB, kAnyOrder));
  EXPECT_LT(pool.figures().acquires, 100u);
  EXPECT_LE(source.physical(), 4'000 * kMiB / 100 * 108);
}

TEST(SegmentPool, GivesEmptySegmentsBackInsteadOfTakingMore) {
  FakeSegments source;
  Pool pool(source, {});
  std::vector<std::uint64_t> small;
  for (int i = 0; i < 64; ++i) small.push_back(address(pool.allocate(8 * kMiB, kAnyOrder)));
  for (const std::uint64_t block : small) pool.deallocate(block, kAnyOrder, {}, false);
  address(pool.allocate(512 * kMiB, kAnyOrder));
  EXPECT_LE(source.physical(), 512 * kMiB / 100 * 108);
}

TEST(SegmentPool, KeepsEmptySegmentsBelowTheBound) {
  FakeSegments source;
  Pool pool(source, {});
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t block = address(pool.allocate(64 * kMiB, kAnyOrder));
    pool.deallocate(block, kAnyOrder, {}, false);
  }
  EXPECT_EQ(pool.figures().driver_calls(), 1u);
}

TEST(SegmentPool, ServesNoWorkButItsOwnBeforeAFenceHasSettled) {
  FakeSegments source;
  Pool pool(source, {});
  const std::uint64_t block = address(pool.allocate(2 * kMiB, 1));
  source.close(7);
  pool.deallocate(block, 1, {7}, true);
  EXPECT_NE(address(pool.allocate(2 * kMiB, 2)), block);
  EXPECT_NE(address(pool.allocate(2 * kMiB, kAnyOrder)), block);
  EXPECT_EQ(address(pool.allocate(2 * kMiB, 1)), block);
  pool.deallocate(block, 1, {7}, true);
  source.open(7);
  EXPECT_EQ(address(pool.allocate(2 * kMiB, 2)), block);
}

TEST(SegmentPool, GivesARetiredBlockBackWithTheLastBlockBesideIt) {
  FakeSegments source;
  Pool pool(source, {});
  std::vector<std::uint64_t> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(address(pool.allocate(kMiB / 4, kAnyOrder)));
  EXPECT_FALSE(pool.retire(blocks[0] + 512));
  for (const int i : {1, 3}) EXPECT_TRUE(pool.retire(blocks[i]));
  EXPECT_FALSE(pool.retire(blocks[1]));
  EXPECT_FALSE(pool.deallocate(blocks[1], kAnyOrder, {}, false));
  EXPECT_EQ(pool.figures().retired_bytes, kMiB / 2);
  for (const int i : {0, 2}) pool.deallocate(blocks[i], kAnyOrder, {}, false);
  for (int i = 0; i < 6; ++i) {
    const std::uint64_t other = address(pool.allocate(kMiB / 4, kAnyOrder));
    EXPECT_TRUE(other != blocks[1] && other != blocks[3]);
    blocks.push_back(other);
  }
  for (const std::uint64_t block : blocks) pool.deallocate(block, kAnyOrder, {}, false);
  pool.trim(0);
  EXPECT_EQ(source.physical(), 0u);
  EXPECT_EQ(pool.figures().retired_bytes, 0u);
}

TEST(SegmentPool, RefusesWhatIsNoBlock) {
  FakeSegments source;
  Pool pool(source, {});
  const std::uint64_t block = address(pool.allocate(4096, kAnyOrder));
  EXPECT_FALSE(pool.deallocate(block + 512, kAnyOrder, {}, false));
  EXPECT_FALSE(pool.deallocate(0, kAnyOrder, {}, false));
  EXPECT_TRUE(pool.deallocate(block, kAnyOrder, {}, false));
  EXPECT_FALSE(pool.deallocate(block, kAnyOrder, {}, false));
  EXPECT_EQ(pool.allocate(~std::uint64_t{0}, kAnyOrder).error, FakeSegments::kOutOfMemory);
  EXPECT_EQ(pool.allocate(std::uint64_t{1} << 61, kAnyOrder).error, FakeSegments::kOutOfMemory);
  EXPECT_TRUE(pool.allocate(0, kAnyOrder).ok);
}

TEST(SegmentPool, GivesBackWhatLiesUnusedBeforeItIsOutOfMemory) {
  FakeSegments source;
  Pool pool(source, {});
  source.limit_bytes = 40 * kMiB;
  std::vector<std::uint64_t> small;
  for (int i = 0; i < 16; ++i) small.push_back(address(pool.allocate(2 * kMiB, kAnyOrder)));
  for (const std::uint64_t block : small) pool.deallocate(block, kAnyOrder, {}, false);
  EXPECT_TRUE(pool.allocate(36 * kMiB, kAnyOrder).ok);
  EXPECT_EQ(pool.allocate(8 * kMiB, kAnyOrder).error, FakeSegments::kOutOfMemory);
}

// Nothing is live, and all work has ended.
TEST(SegmentPool, WaitsForWhatAnotherThreadFindsOutBeforeItIsOutOfMemory) {
  FakeSegments source;
  source.limit_bytes = 8 * kMiB;
  test::OtherThread other(source.refusals);
  Pool pool(source, {});
  pool.deallocate(address(pool.allocate(6 * kMiB, 1)), 1, {7}, true);
  source.meanwhile_asked = [&] { other.hold_up(); };
  other.begin([&] { pool.settle(); });
  EXPECT_TRUE(pool.allocate(8 * kMiB, 2).ok);
  other.end();
}

TEST(SegmentPool, WaitsForWhatAnotherThreadGivesBackBeforeItIsOutOfMemory) {
  FakeSegments source;
  source.limit_bytes = 8 * kMiB;
  test::OtherThread other(source.refusals);
  Pool pool(source, {});
  pool.deallocate(address(pool.allocate(6 * kMiB, kAnyOrder)), kAnyOrder, {}, false);
  source.meanwhile_back = [&] { other.hold_up(); };
  other.begin([&] { pool.trim(0); });
  EXPECT_TRUE(pool.allocate(8 * kMiB, kAnyOrder).ok);
  other.end();
}

TEST(SegmentPool, DoesNotTakeARequestThatFailedForUse) {
  FakeSegments source;
  source.limit_bytes = 1024 * kMiB;
  Pool pool(source, {});
  EXPECT_FALSE(pool.allocate(2048 * kMiB, kAnyOrder).ok);
  EXPECT_EQ(pool.figures().used_peak, 0u);
  address(pool.allocate(3 * kMiB, kAnyOrder));
  EXPECT_EQ(source.physical(), 4 * kMiB);
}

TEST(SegmentPool, MakesNoRoomForMoreThanABlockNeeds) {
  FakeSegments source;
  Pool pool(source, {});
  for (int i = 0; i < 64; ++i) address(pool.allocate(2 * kMiB, kAnyOrder));
  source.limit_bytes = source.physical();
  while (pool.figures().largest_free) address(pool.allocate(2 * kMiB, kAnyOrder));
  source.limit_bytes += 3 * kMiB;
  address(pool.allocate(2 * kMiB, kAnyOrder));
  EXPECT_EQ(source.largest_with_room, 2 * kMiB);
  const SegmentFigures now = pool.figures();
  EXPECT_EQ(now.mapped_bytes, source.physical());
  EXPECT_GT(now.acquires, now.segments) << "more was asked for";
}

TEST(SegmentPool, TakesNoMoreThanABlockNeedsWhereMemoryIsShort) {
  struct Case {
    std::uint64_t limit_bytes, bytes, blocks;
  };
  for (const Case& of : {Case{kMiB, 10'000, kMiB / 10'240}, Case{63 * kMiB, 2 * kMiB + 1, 16}}) {
    FakeSegments source;
    source.limit_bytes = of.limit_bytes;
    Pool pool(source, {});
    std::vector<std::uint64_t> blocks;
    for (Pool::Answer answer; (answer = pool.allocate(of.bytes, kAnyOrder)).ok;) blocks.push_back(answer.first);
    EXPECT_EQ(blocks.size(), of.blocks);
    for (const std::uint64_t block : blocks) pool.deallocate(block, kAnyOrder, {}, false);
    pool.trim(0);
    EXPECT_EQ(source.physical(), 0u) << "small segments go back, too";
  }
}

TEST(SegmentPool, ReservesMemoryBeyondWhatIsFree) {
  FakeSegments source;
  Pool pool(source, {});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(pool.reserve(5'000'000, 1), 0);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(pool.allocate(5'000'000, kAnyOrder).hit);
  EXPECT_EQ(pool.reserve(100'000, 100), 0);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(pool.allocate(100'000, kAnyOrder).hit);
  EXPECT_EQ(pool.figures().acquires, 3u);
}

TEST(SegmentPool, KeepsWhatCouldBeReserved) {
  FakeSegments source;
  source.limit_bytes = 32 * kMiB;
  Pool pool(source, {});
  source.make_room = [&] { pool.trim(0); };
  EXPECT_EQ(pool.reserve(2 * kMiB, 100), FakeSegments::kOutOfMemory);
  EXPECT_EQ(pool.trim(0), 32 * kMiB);
  EXPECT_EQ(pool.reserve(std::uint64_t{1} << 61, 100), FakeSegments::kOutOfMemory);
  EXPECT_EQ(pool.reserve(1, 0), 0);
}

TEST(SegmentPool, GivesBackWhatHasNotSettledWhereNoFenceCanBeAsked) {
  FakeSegments source;
  Pool pool(source, {});
  source.close(7);
  std::vector<std::uint64_t> blocks;
  for (int i = 0; i < 12; ++i) blocks.push_back(address(pool.allocate(kMiB / 2, 1)));
  ASSERT_EQ(source.physical(), 6 * kMiB);
  for (int i = 0; i < 11; ++i) pool.deallocate(blocks[i], i % 2 ? 1 : kNoOrder, {i % 4 ? 7 : 0}, i % 4 != 2);
  EXPECT_EQ(pool.trim(0), 0u);
  EXPECT_EQ(pool.trim_unsettled(), 4 * kMiB);
  EXPECT_EQ(source.physical(), 2 * kMiB) << "a block lives there";
  EXPECT_EQ(pool.figures().mapped_bytes, 2 * kMiB);
  source.open(7);
  pool.settle();
  EXPECT_TRUE(pool.retire(blocks[11]));
  EXPECT_EQ(source.physical(), 0u);
  EXPECT_TRUE(pool.allocate(kMiB, 1).ok);
}

constexpr test::RangeWork kWork{.large_bytes_max = 4 * kMiB};

// Returns how many faults the model found.
int run_models(FakeSegments& source, int threads, long steps, test::RangeWork work = kWork) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE("CISTERN_TEST_SEED=" + std::to_string(seed));
  const bool fails = source.fail_every || source.limit_bytes < std::uint64_t{1} << 40;
  Pool pool(source, {.reuse_in_order = work.reuses_in_order});
  test::RangeBooks books;
  run_range_models(pool, source, books, work, threads, steps, seed);
  if (work.planted != test::Planted::none) return books.faults;
  EXPECT_EQ(books.faults, 0);
  EXPECT_EQ(books.failures > 0, fails);
  EXPECT_EQ(pool.figures().mapped_bytes, 0u);
  EXPECT_EQ(source.physical(), 0u);
  return books.faults;
}

TEST(SegmentPool, IsTheModel) {
  FakeSegments source;
  run_models(source, 1, 100'000);
}

TEST(SegmentPool, IsTheModelInFourThreads) {
  for (const bool reuses_in_order : {true, false}) {
    FakeSegments source;
    test::RangeWork work = kWork;
    work.reuses_in_order = reuses_in_order;
    run_models(source, 4, 5'000, work);
  }
}

TEST(SegmentPool, IsTheModelInStrictOrder) {
  FakeSegments source;
  test::RangeWork work = kWork;
  work.strict = true;
  run_models(source, 4, 5'000, work);
}

TEST(SegmentPool, IsTheModelWhereEachCallFails) {
  for (const int every : {2, 3, 5, 7, 11}) {
    FakeSegments source;
    source.fail_every = every;
    run_models(source, 1, 5'000);
  }
}

TEST(SegmentPool, IsTheModelNearTheEndOfMemory) {
  FakeSegments source;
  source.limit_bytes = 50 * kMiB;
  run_models(source, 1, 20'000);
}

TEST(SegmentPool, IsNotTheModelWhereAFaultIsPlanted) {
  using test::Planted;
  for (const Planted planted : {Planted::early_reuse, Planted::two_owners, Planted::no_retirement}) {
    FakeSegments source;
    test::RangeWork work = kWork;
    work.planted = planted;
    EXPECT_GT(run_models(source, 1, 50'000, work), 0) << static_cast<int>(planted);
  }
}

}  // namespace
}  // namespace cistern::ranges
