// The range pool over a fake driver: against a model of blocks and of who may use what was freed, with each call
// failing, out of memory, and from several threads.
#include "pool/ranges/range_pool.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/fake_ranges.hpp"
#include "tests/support/other_thread.hpp"
#include "tests/support/random.hpp"
#include "tests/support/range_model.hpp"

namespace cistern::ranges {
namespace {

using test::FakeRanges;
using Pool = RangePool<FakeRanges>;
constexpr std::uint64_t kFirst = std::uint64_t{1} << 40, kBytes = std::uint64_t{1} << 34;
constexpr RangeSettings kRange{kFirst, kBytes};
constexpr std::uint64_t kPiece = FakeRanges::kPiece;

std::uint64_t address(const Pool::Answer& answer) {
  EXPECT_TRUE(answer.ok) << answer.error;
  return answer.first;
}

TEST(RangePool, JoinsWhatIsFreed) {
  FakeRanges driver;
  Pool pool(driver, kRange);
  std::vector<std::uint64_t> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(address(pool.allocate(kPiece / 4, kAnyOrder)));
  for (const int i : {0, 2, 4, 6, 1, 3, 5, 7}) ASSERT_TRUE(pool.deallocate(blocks[i], kAnyOrder, {}, false));
  const RangeFigures before = pool.figures();
  EXPECT_EQ(before.largest_free, before.mapped_bytes);
  EXPECT_TRUE(pool.allocate(before.mapped_bytes, kAnyOrder).hit);
  EXPECT_EQ(pool.figures().driver_calls(), before.driver_calls());
}

TEST(RangePool, ServesNoWorkButItsOwnBeforeAFenceHasSettled) {
  FakeRanges driver;
  Pool pool(driver, kRange);
  const std::uint64_t block = address(pool.allocate(kPiece, 1));
  driver.close(7);
  pool.deallocate(block, 1, {7}, true);
  const std::uint64_t others = address(pool.allocate(kPiece, 2));
  EXPECT_NE(others, block);
  const std::uint64_t waiting = address(pool.allocate(kPiece, kAnyOrder));
  EXPECT_NE(waiting, block);
  EXPECT_EQ(address(pool.allocate(kPiece, 1)), block);
  pool.deallocate(block, 1, {7}, true);
  driver.open(7);
  EXPECT_EQ(address(pool.allocate(kPiece, 2)), block);
}

TEST(RangePool, MovesMemoryFromHolesInsteadOfTakingMore) {
  FakeRanges driver;
  Pool pool(driver, kRange);
  std::vector<std::uint64_t> blocks;
  for (int i = 0; i < 64; ++i) blocks.push_back(address(pool.allocate(kPiece, kAnyOrder)));
  for (std::size_t i = 0; i < blocks.size(); i += 2) pool.deallocate(blocks[i], kAnyOrder, {}, false);
  const std::uint64_t physical = driver.physical();
  const Pool::Answer large = pool.allocate(32 * kPiece, kAnyOrder);
  EXPECT_TRUE(large.ok && !large.hit);
  EXPECT_LE(driver.physical(), physical + 2 * kPiece);
  EXPECT_GE(pool.figures().moved, 28u);
  EXPECT_TRUE(driver.is_accessible(large.first, 32 * kPiece));
  EXPECT_EQ(driver.wrong_calls, 0);
}

// A block of 16 pieces that is free, and one of 64 KiB of other blocks' size: the bound leaves no room for more.
TEST(RangePool, ServesSmallBlocksBetweenLargeOnesWhenNoMoreMayBeMapped) {
  FakeRanges driver;
  Pool pool(driver, kRange);
  std::vector<std::uint64_t> large;
  for (int i = 0; i < 4; ++i) large.push_back(address(pool.allocate(16 * kPiece, kAnyOrder)));
  pool.deallocate(large[1], kAnyOrder, {}, false);
  const std::uint64_t calls = pool.figures().driver_calls();
  std::vector<std::uint64_t> small;
  for (int i = 0; i < 200; ++i) small.push_back(address(pool.allocate(4096, kAnyOrder)));
  EXPECT_LE(driver.physical(), (64 + 4) * kPiece);
  EXPECT_LE(pool.figures().driver_calls(), calls + 12);
}

// Many blocks of one size, which grow by one piece or a few at a time, and one that is large beside them.
TEST(RangePool, TakesLargeMemoryInPiecesOfAFewBlocks) {
  FakeRanges driver;
  Pool pool(driver, kRange);
  for (int i = 0; i < 100; ++i) address(pool.allocate(kPiece, kAnyOrder));
  const std::uint64_t creates = pool.figures().creates;
  address(pool.allocate(64 * kPiece, kAnyOrder));
  EXPECT_GE(pool.figures().creates, creates + 8);
  EXPECT_LE(pool.figures().creates, creates + 9);
}

TEST(RangePool, NeverUsesRetiredAddressesAgain) {
  FakeRanges driver;
  Pool pool(driver, kRange);
  const std::uint64_t before = address(pool.allocate(kPiece / 2, kAnyOrder));
  const std::uint64_t retired = address(pool.allocate(kPiece * 3 / 4, kAnyOrder));
  const std::uint64_t behind = address(pool.allocate(kPiece / 4, kAnyOrder));
  ASSERT_EQ(retired, before + kPiece / 2);
  ASSERT_EQ(behind, retired + kPiece * 3 / 4);
  EXPECT_FALSE(pool.retire(retired + 512));
  EXPECT_TRUE(pool.retire(retired));
  EXPECT_FALSE(pool.retire(retired));
  EXPECT_FALSE(pool.deallocate(retired, kAnyOrder, {}, false));
  EXPECT_TRUE(driver.is_accessible(before, kPiece / 2));
  EXPECT_TRUE(driver.is_accessible(behind, kPiece / 4));
  pool.deallocate(before, kAnyOrder, {}, false);
  pool.deallocate(behind, kAnyOrder, {}, false);
  pool.trim(0);
  EXPECT_EQ(driver.physical(), 0u);
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t other = address(pool.allocate(kPiece / 4, kAnyOrder));
    EXPECT_TRUE(other + kPiece / 4 <= retired || other >= retired + kPiece * 3 / 4);
  }
  EXPECT_EQ(driver.wrong_calls, 0);
}

TEST(RangePool, GivesTheWholePiecesOfARetiredBlockBackNow) {
  FakeRanges driver;
  Pool pool(driver, kRange);
  const std::uint64_t retired = address(pool.allocate(20 * kPiece, kAnyOrder));
  const std::uint64_t mapped = driver.physical();
  EXPECT_TRUE(pool.retire(retired));
  EXPECT_LE(driver.physical(), mapped - 20 * kPiece);
  EXPECT_EQ(pool.figures().mapped_bytes, driver.physical());
  EXPECT_EQ(pool.figures().retired_bytes, 20 * kPiece);
  EXPECT_EQ(pool.figures().live_bytes, 0u);
}

TEST(RangePool, RetiresABlockBehindItsFence) {
  FakeRanges driver;
  Pool pool(driver, kRange);
  const std::uint64_t beside = address(pool.allocate(kPiece / 2, kAnyOrder));
  const std::uint64_t retired = address(pool.allocate(kPiece, kAnyOrder));
  driver.close(7);
  EXPECT_FALSE(pool.retire(retired + 512, {7}));
  EXPECT_TRUE(pool.retire(retired, {7}));
  EXPECT_FALSE(pool.retire(retired, {7}));
  EXPECT_EQ(pool.figures().live_blocks, 1u);
  EXPECT_EQ(pool.waiting_bytes(), kPiece);
  pool.deallocate(beside, kAnyOrder, {}, false);
  pool.trim(0);
  EXPECT_TRUE(driver.is_accessible(retired, kPiece)) << "work may still use it";
  driver.open(7);
  pool.settle();
  EXPECT_EQ(driver.physical(), 0u);
  EXPECT_EQ(pool.waiting_bytes(), 0u);
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t other = address(pool.allocate(kPiece / 2, kAnyOrder));
    EXPECT_TRUE(other + kPiece / 2 <= retired || other >= retired + kPiece);
  }
  EXPECT_EQ(driver.wrong_calls, 0);
}

TEST(RangePool, UsesRetiredAddressesAgainAfterItsEnd) {
  FakeRanges driver;
  Pool pool(driver, kRange);
  driver.close(7);
  for (int life = 0; life < 3; ++life) {
    std::vector<std::uint64_t> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(address(pool.allocate(kBytes / 16, kAnyOrder)));
    pool.retire(blocks[0]);
    pool.retire(blocks[1], {7});
    pool.end();
    EXPECT_EQ(driver.physical(), 0u);
    EXPECT_EQ(pool.figures().retired_bytes, 0u);
    EXPECT_EQ(address(pool.allocate(kBytes / 2, kAnyOrder)), blocks[0]);
    pool.end();
  }
  EXPECT_EQ(driver.wrong_calls, 0);
}

// Work of order 1 asks for what it freed; none asks for order 2.
TEST(RangePool, JoinsWaitingMemoryOfThoseOrdersOnlyThatAskForIt) {
  for (const Order order : {1, 2}) {
    FakeRanges driver;
    Pool pool(driver, kRange);
    const std::uint64_t first = address(pool.allocate(kPiece, 1));
    const std::uint64_t second = address(pool.allocate(kPiece, 1));
    ASSERT_EQ(second, first + kPiece);
    driver.close(8);
    pool.deallocate(first, order, {7}, true);
    pool.deallocate(second, order, {8}, true);
    EXPECT_EQ(address(pool.allocate(kPiece, 5)) == first, order == 2);
    EXPECT_EQ(address(pool.allocate(2 * kPiece, 1)) == first, order == 1);
  }
}

TEST(RangePool, RefusesWhatIsNoBlock) {
  FakeRanges driver;
  Pool pool(driver, kRange);
  const std::uint64_t block = address(pool.allocate(4096, kAnyOrder));
  EXPECT_FALSE(pool.deallocate(block + 512, kAnyOrder, {}, false));
  EXPECT_FALSE(pool.deallocate(0, kAnyOrder, {}, false));
  EXPECT_TRUE(pool.deallocate(block, kAnyOrder, {}, false));
  EXPECT_FALSE(pool.deallocate(block, kAnyOrder, {}, false));
  EXPECT_EQ(pool.allocate(~std::uint64_t{0}, kAnyOrder).error, FakeRanges::kNoAddresses);
  EXPECT_EQ(pool.allocate(kBytes, kAnyOrder).error, FakeRanges::kNoAddresses);
  EXPECT_TRUE(pool.allocate(0, kAnyOrder).ok);
}

TEST(RangePool, HasBlocksOfHalfTheRangeAndSmallOnesBeyondTheirZone) {
  FakeRanges driver;
  RangeSettings settings = kRange;
  settings.bytes = 64 * kPiece;
  Pool pool(driver, settings);
  EXPECT_EQ(pool.allocate(33 * kPiece, kAnyOrder).error, FakeRanges::kNoAddresses);
  address(pool.allocate(32 * kPiece, kAnyOrder));
  std::vector<std::uint64_t> small;
  for (;;) {
    const Pool::Answer answer = pool.allocate(kPiece, kAnyOrder);
    if (!answer.ok) break;
    small.push_back(answer.first);
  }
  EXPECT_EQ(small.size(), 28u);
}

TEST(RangePool, GivesBackWhatLiesUnusedBeforeItIsOutOfMemory) {
  FakeRanges driver;
  Pool pool(driver, kRange);
  driver.limit_bytes = 40 * kPiece;
  std::vector<std::uint64_t> small;
  for (int i = 0; i < 32; ++i) small.push_back(address(pool.allocate(kPiece, kAnyOrder)));
  for (const std::uint64_t block : small) pool.deallocate(block, kAnyOrder, {}, false);
  EXPECT_TRUE(pool.allocate(36 * kPiece, kAnyOrder).ok);
  EXPECT_EQ(pool.allocate(8 * kPiece, kAnyOrder).error, FakeRanges::kOutOfMemory);
  EXPECT_EQ(driver.wrong_calls, 0);
}

// Others take memory meanwhile.
TEST(RangePool, TakesNoMemoryForARequestThatIsTooLarge) {
  FakeRanges driver;
  driver.limit_bytes = 64 * kPiece;
  Pool pool(driver, kRange);
  for (int i = 0; i < 32; ++i) address(pool.allocate(kPiece, kAnyOrder));
  EXPECT_EQ(pool.allocate(40 * kPiece, kAnyOrder).error, FakeRanges::kOutOfMemory);
  EXPECT_LE(driver.physical_peak, 34 * kPiece);
  EXPECT_TRUE(pool.allocate(30 * kPiece, kAnyOrder).ok);
}

TEST(RangePool, AsksForNoAccessToWhatIsUnmappedMeanwhile) {
  FakeRanges driver;
  Pool pool(driver, kRange);
  for (int i = 0; i < 2; ++i) pool.deallocate(address(pool.allocate(4 * kPiece, kAnyOrder)), kAnyOrder, {}, false);
  driver.meanwhile_access = [&] { pool.trim(0); };
  EXPECT_EQ(pool.allow_access_again(), 0);
  driver.meanwhile_access = nullptr;
  address(pool.allocate(4 * kPiece, kAnyOrder));
  driver.fail_every = 1;
  EXPECT_EQ(pool.allow_access_again(), FakeRanges::kBroken);
}

TEST(RangePool, KnowsWhatATrimWouldGiveBack) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    FakeRanges driver;
    Pool pool(driver, kRange);
    std::mt19937 random(seed);
    const auto below = [&](std::uint64_t bound) { return random() % bound; };
    std::vector<std::uint64_t> blocks;
    for (int i = 0; i < 2000; ++i) {
      if (below(3)) {
        blocks.push_back(address(pool.allocate(512 + below(5 * kPiece), kAnyOrder)));
      } else if (!blocks.empty()) {
        std::swap(blocks[below(blocks.size())], blocks.back());
        pool.deallocate(blocks.back(), kAnyOrder, {}, false);
        blocks.pop_back();
      }
    }
    for (std::size_t i = blocks.size(); i-- > 20;) pool.deallocate(blocks[i], kAnyOrder, {}, false);
    const std::uint64_t known = pool.reclaimable_bytes();
    EXPECT_GT(known, 0u);
    EXPECT_EQ(pool.trim(0), known);
    EXPECT_EQ(pool.reclaimable_bytes(), 0u);
  }
}

// Nothing is live, and all work has ended.
TEST(RangePool, WaitsForWhatAnotherThreadFindsOutBeforeItIsOutOfMemory) {
  FakeRanges driver;
  driver.limit_bytes = 8 * kPiece;
  test::OtherThread other(driver.refusals);
  Pool pool(driver, kRange);
  pool.deallocate(address(pool.allocate(6 * kPiece, 1)), 1, {7}, true);
  driver.meanwhile_asked = [&] { other.hold_up(); };
  other.begin([&] { pool.settle(); });
  EXPECT_TRUE(pool.allocate(8 * kPiece, 2).ok);
  other.end();
}

TEST(RangePool, WaitsForWhatAnotherThreadGivesBackBeforeItIsOutOfMemory) {
  FakeRanges driver;
  driver.limit_bytes = 8 * kPiece;
  test::OtherThread other(driver.refusals);
  Pool pool(driver, kRange);
  pool.deallocate(address(pool.allocate(6 * kPiece, kAnyOrder)), kAnyOrder, {}, false);
  driver.meanwhile_back = [&] { other.hold_up(); };
  other.begin([&] { pool.trim(0); });
  EXPECT_TRUE(pool.allocate(8 * kPiece, kAnyOrder).ok);
  other.end();
}

TEST(RangePool, DoesNotTakeARequestThatFailedForUse) {
  FakeRanges driver;
  driver.limit_bytes = 64 * kPiece;
  Pool pool(driver, kRange);
  std::vector<std::uint64_t> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(address(pool.allocate(4 * kPiece, kAnyOrder)));
  EXPECT_FALSE(pool.allocate(128 * kPiece, kAnyOrder).ok);
  EXPECT_EQ(pool.figures().used_peak, 32 * kPiece);
  EXPECT_EQ(pool.take_recent_peak(), 32 * kPiece);
  for (int i = 0; i < 8; i += 2) pool.deallocate(blocks[i], kAnyOrder, {}, false);
  address(pool.allocate(16 * kPiece, kAnyOrder));
  EXPECT_LE(driver.physical(), 33 * kPiece) << "memory in holes moves";
}

constexpr test::RangeWork kWork{.large_bytes_max = 40 * kPiece};

// Returns how many faults the model found.
int run_models(FakeRanges& driver, int threads, long steps, test::RangeWork work = kWork) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE("CISTERN_TEST_SEED=" + std::to_string(seed));
  RangeSettings settings = kRange;
  settings.reuse_in_order = work.reuses_in_order;
  const bool fails = driver.fail_every || driver.limit_bytes != ~std::uint64_t{0};
  Pool pool(driver, settings);
  test::RangeBooks books;
  run_range_models(pool, driver, books, work, threads, steps, seed);
  if (work.planted != test::Planted::none) return books.faults;
  EXPECT_EQ(books.faults, 0);
  EXPECT_EQ(books.failures > 0, fails);
  const RangeFigures figures = pool.figures();
  EXPECT_EQ(figures.mapped_bytes, figures.lost_bytes);
  EXPECT_EQ(driver.physical(), figures.lost_bytes);
  return books.faults;
}

TEST(RangePool, IsTheModel) {
  FakeRanges driver;
  run_models(driver, 1, 100'000);
}

TEST(RangePool, IsTheModelInFourThreads) {
  for (const bool reuses_in_order : {true, false}) {
    FakeRanges driver;
    test::RangeWork work = kWork;
    work.reuses_in_order = reuses_in_order;
    run_models(driver, 4, 5'000, work);
  }
}

TEST(RangePool, IsTheModelInStrictOrder) {
  FakeRanges driver;
  test::RangeWork work = kWork;
  work.strict = true;
  run_models(driver, 4, 5'000, work);
}

TEST(RangePool, IsTheModelWhereAllWaitForFences) {
  FakeRanges driver;
  test::RangeWork work = kWork;
  work.reuses_in_order = false;
  run_models(driver, 1, 20'000, work);
}

TEST(RangePool, IsTheModelWhereEachCallFails) {
  for (const int every : {2, 3, 5, 7, 11, 50}) {
    FakeRanges driver;
    driver.fail_every = every;
    run_models(driver, 1, 5'000);
  }
}

TEST(RangePool, IsTheModelWhereUnmappingFailsToo) {
  for (const int every : {2, 3, 7, 20}) {
    FakeRanges driver;
    driver.fail_every = every;
    driver.unmaps_fail = true;
    run_models(driver, 1, 5'000);
  }
}

TEST(RangePool, IsTheModelNearTheEndOfMemory) {
  FakeRanges driver;
  driver.limit_bytes = 150 * kPiece;
  run_models(driver, 1, 20'000);
}

TEST(RangePool, IsNotTheModelWhereAFaultIsPlanted) {
  using test::Planted;
  for (const Planted planted : {Planted::early_reuse, Planted::two_owners, Planted::no_retirement}) {
    FakeRanges driver;
    test::RangeWork work = kWork;
    work.planted = planted;
    EXPECT_GT(run_models(driver, 1, 50'000, work), 0) << static_cast<int>(planted);
  }
}

}  // namespace
}  // namespace cistern::ranges
