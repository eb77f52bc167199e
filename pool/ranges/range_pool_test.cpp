// The range pool over a fake driver: against a model of blocks and of who may use what was freed, with each call
// failing, out of memory, and from several threads.
#include "pool/ranges/range_pool.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/fake_ranges.hpp"
#include "tests/support/random.hpp"

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

TEST(RangePool, NeverMovesWhatWasPinned) {
  FakeRanges driver;
  Pool pool(driver, kRange);
  const std::uint64_t pinned = address(pool.allocate(16 * kPiece, kAnyOrder));
  address(pool.allocate(16 * kPiece, kAnyOrder));
  pool.pin(pinned);
  pool.deallocate(pinned, kAnyOrder, {}, false);
  EXPECT_TRUE(pool.allocate(24 * kPiece, kAnyOrder).ok);
  EXPECT_EQ(pool.trim(0), 0u);
  EXPECT_TRUE(driver.is_accessible(pinned, 16 * kPiece));
}

TEST(RangePool, MovesWhatIsNotPinnedAnyMore) {
  FakeRanges driver;
  Pool pool(driver, kRange);
  const std::uint64_t block = address(pool.allocate(16 * kPiece, kAnyOrder));
  const auto one = pool.pin(block), two = pool.pin(block);
  pool.deallocate(block, kAnyOrder, {}, false);
  pool.unpin(one);
  EXPECT_EQ(pool.trim(0), 0u);
  pool.unpin(two);
  EXPECT_EQ(pool.trim(0), 16 * kPiece);
  EXPECT_EQ(pool.pin(block).bytes, 0u);
  EXPECT_EQ(driver.wrong_calls, 0);
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

TEST(RangePool, LeavesRetiredMemoryThatIsPinned) {
  FakeRanges driver;
  Pool pool(driver, kRange);
  const std::uint64_t block = address(pool.allocate(4 * kPiece, kAnyOrder));
  const auto pinned = pool.pin(block);
  EXPECT_TRUE(pool.retire(block));
  EXPECT_TRUE(driver.is_accessible(block, 4 * kPiece));
  pool.unpin(pinned);
  pool.trim(0);
  EXPECT_EQ(driver.physical(), 0u);
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

// Blocks that one thread has, and what it freed that other work may not use yet.
class Model {
 public:
  Model(Pool& pool, FakeRanges& driver, unsigned seed, Order own, bool reuses_in_order)
      : pool_(pool), driver_(driver), random_(seed), own_(own), reuses_in_order_(reuses_in_order) {}

  void step() {
    const bool grows = random_() % 64 ? blocks_.size() < 200 : random_() % 2;
    if (grows && random_() % 2)
      allocate();
    else if (!blocks_.empty())
      free_one();
    // Those of one order settle in that order.
    if (random_() % 3 == 0 && !gates_.empty()) open(gates_, 0);
    if (random_() % 3 == 0 && !unordered_.empty()) open(unordered_, random_() % unordered_.size());
    if (random_() % 512 == 0) pool_.trim(random_() % 2 ? 0 : 1 << 22);
  }
  void end() {
    while (!blocks_.empty()) free_one();
    while (!gates_.empty()) open(gates_, 0);
    while (!unordered_.empty()) open(unordered_, unordered_.size() - 1);
  }
  int failures() const { return failures_; }

 private:
  void open(std::vector<int>& gates, std::size_t which) {
    driver_.open(gates[which]);
    gates.erase(gates.begin() + static_cast<std::ptrdiff_t>(which));
  }
  void allocate() {
    const std::uint64_t bytes = 1 + (random_() % 4 ? random_() % 20'000 : random_() % (40 * kPiece));
    const Order order = random_() % 3 ? own_ : kAnyOrder;
    const Pool::Answer answer = pool_.allocate(bytes, order);
    if (!answer.ok) {
      ++failures_;
      EXPECT_TRUE(answer.error == FakeRanges::kBroken || answer.error == FakeRanges::kOutOfMemory) << answer.error;
      return;
    }
    EXPECT_TRUE(driver_.is_accessible(answer.first, bytes));
    check_order(answer.first, bytes, order);
    blocks_.push_back({answer.first, bytes});
  }
  void free_one() {
    const std::size_t which = random_() % blocks_.size();
    const auto [first, bytes] = blocks_[which];
    EXPECT_TRUE(driver_.is_accessible(first, bytes));
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(which));
    const bool waits = random_() % 2;
    int gate = 0;
    const Order order = random_() % 3 ? own_ : kNoOrder;
    if (waits) {
      static std::atomic<int> last{0};
      gate = ++last;
      driver_.close(gate);
      (order == kNoOrder ? unordered_ : gates_).push_back(gate);
      freed_.push_back({first, bytes, order, gate});
    }
    EXPECT_TRUE(pool_.deallocate(first, order, {gate}, waits));
  }
  void check_order(std::uint64_t first, std::uint64_t bytes, Order order) {
    std::erase_if(freed_, [&](const Freed& one) {
      const bool is_closed = std::find(gates_.begin(), gates_.end(), one.gate) != gates_.end() ||
                             std::find(unordered_.begin(), unordered_.end(), one.gate) != unordered_.end();
      const bool overlaps = one.first < first + bytes && first < one.first + one.bytes;
      if (is_closed && overlaps) {
        EXPECT_TRUE(reuses_in_order_) << "used before its fence settled";
        EXPECT_NE(order, kAnyOrder) << "used before its fence settled";
        EXPECT_EQ(one.order, order) << "used before its fence settled";
      }
      return !is_closed || overlaps;
    });
  }

  struct Block {
    std::uint64_t first, bytes;
  };
  struct Freed {
    std::uint64_t first, bytes;
    Order order;
    int gate;
  };
  Pool& pool_;
  FakeRanges& driver_;
  std::mt19937_64 random_;
  const Order own_;
  const bool reuses_in_order_;
  std::vector<Block> blocks_;
  std::vector<Freed> freed_;
  std::vector<int> gates_, unordered_;
  int failures_ = 0;
};

void run_models(FakeRanges& driver, int threads, int steps, bool reuse_in_order = true) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE("CISTERN_TEST_SEED=" + std::to_string(seed));
  RangeSettings settings = kRange;
  settings.reuse_in_order = reuse_in_order;
  Pool pool(driver, settings);
  std::vector<std::thread> all;
  std::atomic<int> failures{0};
  for (int i = 0; i < threads; ++i)
    all.emplace_back([&, i] {
      Model model(pool, driver, seed + static_cast<unsigned>(i), static_cast<Order>(i + 1), reuse_in_order);
      for (int step = 0; step < steps; ++step) model.step();
      model.end();
      failures += model.failures();
    });
  for (std::thread& thread : all) thread.join();
  EXPECT_EQ(failures > 0, driver.fail_every || driver.limit_bytes != ~std::uint64_t{0});
  EXPECT_EQ(driver.wrong_calls, 0);
  driver.fail_every = 0;
  EXPECT_EQ(pool.figures().live_bytes, 0u);
  pool.trim(0);
  const RangeFigures figures = pool.figures();
  EXPECT_EQ(figures.mapped_bytes, figures.lost_bytes);
  EXPECT_EQ(driver.physical(), figures.lost_bytes);
}

TEST(RangePool, IsTheModel) {
  FakeRanges driver;
  run_models(driver, 1, 20'000);
}

TEST(RangePool, IsTheModelInFourThreads) {
  for (const bool reuse_in_order : {true, false}) {
    FakeRanges driver;
    run_models(driver, 4, 5'000, reuse_in_order);
  }
}

TEST(RangePool, IsTheModelWhereAllWaitForFences) {
  FakeRanges driver;
  run_models(driver, 1, 20'000, false);
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

}  // namespace
}  // namespace cistern::ranges
