// BlockSource over a fake driver: whole device and pinned allocations, pieces of slabs, calls that fail, gates that are
// shut, contexts that go.
#include "backends/cuda/block_source.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <thread>

#include "backends/cuda/fake_driver.hpp"
#include "pool/recycle_pool.hpp"
#include "tests/support/random.hpp"

namespace cistern::cuda {
namespace {

using cistern::test::new_seed;
using test::FakeDriver;

constexpr std::uint64_t kKiB = 1024, kSlabBytes = 256 * kKiB;

class BlockSourceTest : public testing::Test {
 protected:
  BlockSourceTest() {
    for (Context* context : {&a, &b}) context->device = &device;
    a.address = 0xA000;
    b.address = 0xB000;
    FakeDriver::make_current(a.handle());
  }
  ~BlockSourceTest() override { EXPECT_EQ(driver.wrong(), std::vector<std::string>{}); }

  Block* acquire(std::uint64_t traits, std::uint64_t bytes) {
    auto acquired = source.acquire({&a, traits, bytes});
    EXPECT_TRUE(acquired.ok) << acquired.error;
    return acquired.chunk;
  }
  Block* device_block(std::uint64_t bytes = 4096) { return acquire(kDeviceTraits, bytes); }
  Block* piece(std::uint64_t bytes = 32 * kKiB) { return acquire(kPlainHostAllocation, bytes); }
  static std::uintptr_t address(Block* block) { return block->address.load(); }
  void expect_nothing_left() {
    EXPECT_EQ(driver.live_allocations(), 0u);
    EXPECT_EQ(device.reserved_bytes, 0u);
    EXPECT_EQ(source.pinned_reserved_bytes, 0u);
    int listed = 0;
    blocks.table.for_each([&](Block&) { ++listed; });
    EXPECT_EQ(listed, 0);
  }

  FakeDriver driver;
  Functions functions = driver.functions();
  CallGate gate;
  Blocks blocks;
  BlockSource source{functions, gate, blocks};
  Device device;
  Context a{functions, gate}, b{functions, gate};
};

TEST_F(BlockSourceTest, ADeviceBlockIsAWholeDriverAllocation) {
  Block* block = device_block(4608);
  EXPECT_TRUE(driver.is_live(address(block)));
  EXPECT_EQ(driver.live_bytes(), 4608u);
  EXPECT_EQ(device.reserved_bytes, 4608u);
  EXPECT_EQ(device.calls.allocs, 1u);
  EXPECT_EQ(block->state, BlockState::cached);
  EXPECT_EQ(block->kind, BlockKind::device);
  EXPECT_EQ(block->key(), (PoolKey{reinterpret_cast<std::uintptr_t>(&a), kDeviceTraits, 4608}));
  EXPECT_EQ(blocks.table.find(address(block)), block);
  EXPECT_EQ(blocks.containing(address(block) + 4607), block);
  EXPECT_EQ(blocks.containing(address(block) + 4608), nullptr);
  const std::uintptr_t where = address(block);
  source.release(block);
  EXPECT_EQ(device.calls.frees, 1u);
  EXPECT_EQ(blocks.containing(where), nullptr);
  EXPECT_EQ(block->state, BlockState::gone);
  expect_nothing_left();
}

TEST_F(BlockSourceTest, RecordsAreUsedAgainAndStartClean) {
  Block* block = device_block();
  block->marked = true;
  block->recycled = true;
  block->buffer_id = 5;
  block->site = block->freed_site = 9;
  source.release(block);
  Block* again = device_block();
  EXPECT_EQ(again, block);
  EXPECT_FALSE(again->marked || again->recycled || again->buffer_id || again->site || again->freed_site || again->slab);
  source.release(again);
}

TEST_F(BlockSourceTest, PinnedMemoryIsAllocatedTheWayItWasAskedFor) {
  Block* plain = acquire(kPlainHostAllocation | std::uint64_t{1} << kNodeShift, 64 * kKiB);
  Block* flagged = acquire(kHostAllocPortable | kHostAllocWriteCombined, 64 * kKiB);
  EXPECT_TRUE(driver.is_plain(address(plain)));
  EXPECT_FALSE(driver.is_plain(address(flagged)));
  EXPECT_EQ(driver.flags_of(address(flagged)), kHostAllocPortable | kHostAllocWriteCombined);
  EXPECT_EQ(source.pinned_reserved_bytes, 128 * kKiB);
  EXPECT_EQ(source.pinned_calls.allocs, 2u);
  source.release(plain);
  source.release(flagged);
  EXPECT_EQ(source.pinned_calls.frees, 2u);
  expect_nothing_left();
}

TEST_F(BlockSourceTest, BlocksAreReleasedInTheirOwnContext) {
  Block* of_device = device_block();
  Block* pinned = piece();
  FakeDriver::make_current(b.handle());
  source.release(of_device);
  source.release(pinned);
  EXPECT_EQ(FakeDriver::contexts_pushed(), 1u);
  EXPECT_EQ(FakeDriver::capture_mode(), kCaptureModeGlobal);
  expect_nothing_left();
}

// --- Slabs

TEST_F(BlockSourceTest, SmallPinnedBlocksShareASlab) {
  std::vector<Block*> pieces;
  std::set<std::uintptr_t> addresses;
  for (int i = 0; i < 9; ++i) {
    pieces.push_back(piece());
    addresses.insert(address(pieces.back()));
    EXPECT_EQ(blocks.containing(address(pieces.back()) + 32 * kKiB - 1), pieces.back());
  }
  EXPECT_EQ(driver.live_allocations(), 2u) << "eight in the first";
  EXPECT_EQ(driver.live_bytes(), 2 * kSlabBytes);
  EXPECT_EQ(source.pinned_reserved_bytes, 2 * kSlabBytes);
  EXPECT_EQ(source.pinned_calls.allocs, 2u);
  EXPECT_EQ(addresses.size(), 9u);
  for (auto it = addresses.begin(), next = std::next(it); next != addresses.end(); ++it, ++next)
    EXPECT_GE(*next - *it, 32 * kKiB) << "pieces overlap";
  for (Block* one : pieces) source.release(one);
  EXPECT_EQ(source.pinned_calls.frees, 2u);
  expect_nothing_left();
}

TEST_F(BlockSourceTest, ASlabIsFreedWithItsLastPieceAndNotBefore) {
  for (unsigned order = 0; order < 3; ++order) {
    std::vector<Block*> pieces;
    for (int i = 0; i < 8; ++i) pieces.push_back(piece());
    const std::uint64_t frees = source.pinned_calls.frees;
    if (order == 1) std::reverse(pieces.begin(), pieces.end());
    if (order == 2) std::rotate(pieces.begin(), pieces.begin() + 3, pieces.end());
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      EXPECT_EQ(source.pinned_calls.frees, frees) << "freed under " << pieces.size() - i << " pieces";
      source.release(pieces[i]);
    }
    EXPECT_EQ(source.pinned_calls.frees, frees + 1);
    expect_nothing_left();
  }
}

TEST_F(BlockSourceTest, AFreePieceIsGivenAgainBeforeANewSlab) {
  std::vector<Block*> pieces;
  for (int i = 0; i < 8; ++i) pieces.push_back(piece());
  const std::uintptr_t where = address(pieces[3]);
  source.release(pieces[3]);
  EXPECT_EQ(blocks.containing(where), nullptr) << "a free piece is nobody's block";
  EXPECT_EQ(address(pieces[3] = piece()), where);
  EXPECT_EQ(driver.live_allocations(), 1u);
  for (Block* one : pieces) source.release(one);
  expect_nothing_left();
}

// Commands may still use it, and no call to the driver waits for them before the slab is freed.
TEST_F(BlockSourceTest, APieceReleasedUnsettledIsNotGivenAgain) {
  std::vector<Block*> pieces;
  for (int i = 0; i < 8; ++i) pieces.push_back(piece());
  std::set<std::uintptr_t> unsettled;
  for (int i = 0; i < 3; ++i) {
    unsettled.insert(address(pieces.back()));
    source.release_unsettled(pieces.back());
    pieces.pop_back();
  }
  const std::uintptr_t settled = address(pieces.back());
  source.release(pieces.back());
  pieces.back() = piece();
  EXPECT_EQ(address(pieces.back()), settled);
  EXPECT_EQ(driver.live_allocations(), 1u);
  pieces.push_back(piece());
  EXPECT_FALSE(unsettled.count(address(pieces.back())));
  EXPECT_EQ(driver.live_allocations(), 2u);
  for (Block* one : pieces) source.release_unsettled(one);
  expect_nothing_left();
}

TEST_F(BlockSourceTest, ThePoolNeverHandsOutAPieceThatCommandsMayUse) {
  RecyclePool<BlockSource> pool(source);
  pool.set_limits({.bytes_max = 64 * kKiB});
  CUstream stream = driver.new_stream(true);
  std::vector<Block*> pieces;
  std::set<std::uintptr_t> in_use;
  for (int i = 0; i < 8; ++i) pieces.push_back(piece());
  const PoolKey key = pieces[0]->key();
  driver.enqueue(stream);
  for (std::size_t i = 0; i < 7; ++i) {
    in_use.insert(address(pieces[i]));
    // The first ones go when the pool is over its cap, the last because nothing can be known of it.
    if (i == 6) driver.fail_always("cuEventQuery");
    BlockSource::Fence fence;
    fence.push_back({&a, a.clock.now()});
    pool.give(key, pieces[i], std::move(fence), true, 1);
  }
  driver.fail_no_more();
  for (int i = 0; i < 8; ++i) {
    const auto taken = pool.take(key, 1);
    Block* block = taken ? *taken : piece();
    EXPECT_FALSE(in_use.count(address(block))) << "handed out with a command under way";
  }
}

TEST_F(BlockSourceTest, ANewSlabOnlyWhenAllAreFullAndNoneThatIsEmpty) {
  const unsigned seed = new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  std::vector<Block*> held;
  for (int step = 0; step < 20'000; ++step) {
    const std::size_t slabs = driver.live_allocations();
    if (random() % 200 < (step % 4000 < 2000 ? 110u : 80u) || held.empty()) {
      const bool all_full = held.size() == 8 * slabs;
      held.push_back(piece());
      ASSERT_EQ(driver.live_allocations(), slabs + all_full) << "step " << step;
    } else {
      std::swap(held[random() % held.size()], held.back());
      const std::uintptr_t slab = reinterpret_cast<std::uintptr_t>(held.back()->slab);
      source.release(held.back());
      held.pop_back();
      const bool was_last = std::none_of(held.begin(), held.end(), [&](Block* other) {
        return reinterpret_cast<std::uintptr_t>(other->slab) == slab;
      });
      ASSERT_EQ(driver.live_allocations(), slabs - was_last) << "step " << step;
    }
  }
  for (Block* one : held) source.release(one);
  expect_nothing_left();
}

TEST_F(BlockSourceTest, SlabsAreApartBySizeTraitsAndContext) {
  std::vector<Block*> pieces = {piece(512), piece(1024), acquire(kHostAllocPortable, 512)};
  FakeDriver::make_current(b.handle());
  pieces.push_back(source.acquire({&b, kPlainHostAllocation, 512}).chunk);
  EXPECT_EQ(driver.live_allocations(), 4u);
  for (Block* one : pieces) source.release(one);
  expect_nothing_left();
}

TEST_F(BlockSourceTest, TheRestOfASlabIsNobodysBlock) {
  constexpr std::uint64_t kBytes = 4608;  // 56 of these leave 4096 bytes
  std::vector<Block*> pieces;
  std::uintptr_t first = ~std::uintptr_t{0};
  for (int i = 0; i < 56; ++i) {
    pieces.push_back(piece(kBytes));
    first = std::min(first, address(pieces.back()));
  }
  EXPECT_EQ(driver.live_allocations(), 1u);
  EXPECT_EQ(blocks.containing(first + 56 * kBytes), nullptr);
  EXPECT_EQ(blocks.containing(first + kSlabBytes - 1), nullptr);
  EXPECT_NE(blocks.containing(first + 56 * kBytes - 1), nullptr);
  EXPECT_EQ(blocks.ranges.find(first + kSlabBytes - 1)->value.kind, RangeKind::slab);
  EXPECT_FALSE(blocks.ranges.find(first + kSlabBytes));
  for (Block* one : pieces) source.release(one);
  expect_nothing_left();
}

// --- Failures

TEST_F(BlockSourceTest, NativeErrorsPassUnchanged) {
  for (std::uint64_t traits : {kDeviceTraits, kPlainHostAllocation, std::uint64_t{0}})
    for (std::uint64_t bytes : {512, 1 << 20}) {
      driver.fail_at(1, kIllegalAddress);
      auto acquired = source.acquire({&a, traits, bytes});
      EXPECT_FALSE(acquired.ok);
      EXPECT_EQ(acquired.error, kIllegalAddress);
      EXPECT_EQ(acquired.chunk, nullptr);
    }
  EXPECT_EQ(device.calls.allocs, 0u);
  EXPECT_EQ(source.pinned_calls.allocs, 0u);
  EXPECT_TRUE(BlockSource::out_of_memory(kOutOfMemory));
  EXPECT_FALSE(BlockSource::out_of_memory(kIllegalAddress));
  expect_nothing_left();
}

TEST_F(BlockSourceTest, EveryCallFailingInTurnLosesNoCount) {
  for (int n = 1;; ++n) {
    const int before = driver.all_calls();
    const std::uint64_t failed_frees = source.failed_frees;
    const std::size_t live_before = driver.live_allocations();
    driver.fail_at(n, kOutOfMemory);
    std::vector<Block*> held;
    int refused = 0;
    for (int step = 0; step < 30; ++step) {
      const std::uint64_t bytes = step % 3 ? 16 * kKiB : 64 * kKiB;
      auto acquired = source.acquire({&a, step % 2 ? kDeviceTraits : kPlainHostAllocation, bytes});
      acquired.ok ? held.push_back(acquired.chunk) : void(++refused);
      if (step % 4 != 3) continue;
      FakeDriver::make_current(step % 8 == 3 ? b.handle() : a.handle());
      source.release(held.front());
      held.erase(held.begin());
      FakeDriver::make_current(a.handle());
    }
    for (Block* block : held) source.release(block);
    EXPECT_LE(refused, 1) << n;
    EXPECT_EQ(device.reserved_bytes, 0u) << "call " << n;
    EXPECT_EQ(source.pinned_reserved_bytes, 0u) << "call " << n;
    EXPECT_EQ(driver.live_allocations() - live_before, source.failed_frees - failed_frees)
        << "call " << n << ": what the driver refused to free is counted, all else is freed";
    const bool over = driver.all_calls() - before < n;
    driver.fail_no_more();
    int global = kCaptureModeGlobal;
    functions.exchange_capture_mode(&global);
    if (over) break;
  }
}

// --- The gate

TEST_F(BlockSourceTest, WhileTheGateIsShutReleasesArePostponed) {
  Block* whole = device_block();
  Block* small = piece();
  const int before = driver.all_calls();
  gate.captures = 1;
  source.release(whole);
  source.release(small);
  source.release_postponed();
  EXPECT_EQ(driver.all_calls(), before);
  EXPECT_EQ(blocks.table.find(address(whole)), whole) << "still known, so that a second free is told";
  EXPECT_EQ(whole->state, BlockState::cached);
  gate.captures = 0;
  source.release_postponed();
  expect_nothing_left();
  const int after = driver.all_calls();
  source.release_postponed();
  EXPECT_EQ(driver.all_calls(), after);
}

TEST_F(BlockSourceTest, WhileCapturingWhatIsIdleGoesBackWhenThatIsAskedFor) {
  Block *idle = device_block(), *later = device_block(), *unsettled = device_block();
  gate.captures = 1;
  source.release_while_capturing(idle, false);
  EXPECT_EQ(driver.live_allocations(), 2u);
  EXPECT_EQ(source.frees_done, 1u);
  source.release(later);
  source.release_unsettled(unsettled);
  EXPECT_EQ(driver.live_allocations(), 2u) << "postponed";
  source.release_postponed_while_capturing(false);
  EXPECT_EQ(driver.live_allocations(), 1u) << "its free would have to wait";
  EXPECT_EQ(source.frees_done, 2u);
  std::uint64_t waiting = 0;
  source.for_each_unsettled_postponed([&](const Block* block) { waiting += block->bytes; });
  EXPECT_EQ(waiting, unsettled->bytes);
  source.release_postponed_while_capturing(true);
  gate.captures = 0;
  expect_nothing_left();
}

TEST_F(BlockSourceTest, AtExitPostponedReleasesStay) {
  Block* block = device_block();
  gate.closed = true;
  source.release(block);
  source.release_postponed();
  EXPECT_EQ(driver.live_allocations(), 1u);
  EXPECT_EQ(device.calls.frees, 0u);
}

// The record is used again for memory that the program holds by the time when releases catch up.
TEST_F(BlockSourceTest, APostponedBlockThatWasForgottenIsNotReleasedLater) {
  Block* block = device_block();
  gate.captures = 1;
  source.release(block);
  a.epoch.fetch_add(1);
  source.forget(block);
  gate.captures = 0;
  Block* anew = device_block();
  ASSERT_EQ(anew, block) << "this test is about a record that is used again";
  anew->state = BlockState::live;
  source.release_postponed();
  EXPECT_TRUE(driver.is_live(address(anew))) << "memory of the program was freed under its feet";
  EXPECT_EQ(blocks.table.find(address(anew)), anew);
}

TEST_F(BlockSourceTest, PostponedBlocksOfAContextThatWentAreForgotten) {
  Block* whole = device_block();
  Block* small = piece();
  gate.captures = 1;
  source.release(whole);
  source.release(small);
  a.alive = false;
  a.epoch.fetch_add(1);
  source.forget_slabs(&a);
  gate.captures = 0;
  const int before = driver.all_calls();
  source.release_postponed();
  EXPECT_EQ(driver.all_calls(), before);
  EXPECT_EQ(device.reserved_bytes, 0u);
  EXPECT_EQ(source.pinned_reserved_bytes, 0u);
  EXPECT_EQ(blocks.table.find(address(whole)), nullptr);
}

// --- Contexts that go

TEST_F(BlockSourceTest, AContextThatWentTakesItsBlocksAlong) {
  Block* whole = device_block();
  std::vector<Block*> pieces;
  for (int i = 0; i < 10; ++i) pieces.push_back(piece());
  const std::uintptr_t slab = address(pieces[0]);
  const int before = driver.all_calls();
  a.epoch.fetch_add(1);
  source.forget(whole);
  source.forget(pieces[0]);
  source.forget_slabs(&a);
  EXPECT_FALSE(blocks.ranges.find(slab));
  EXPECT_EQ(device.reserved_bytes, 0u);
  EXPECT_EQ(source.pinned_reserved_bytes, 0u);
  // The program's threads free the rest at their leisure, when the same handle names a new context.
  Block* of_new_context = piece();
  for (std::size_t i = 1; i < pieces.size(); ++i) source.release(pieces[i]);
  EXPECT_EQ(driver.calls("cuMemFreeHost") + driver.calls("cuMemFree"), 0);
  EXPECT_EQ(driver.all_calls(), before + 1) << "but for the new slab";
  EXPECT_EQ(blocks.containing(address(of_new_context)), of_new_context);
  source.release(of_new_context);
  EXPECT_EQ(source.pinned_reserved_bytes, 0u);
}

TEST_F(BlockSourceTest, OneContextGoingLeavesTheOthersSlabs) {
  Block* of_a = piece();
  FakeDriver::make_current(b.handle());
  Block* of_b = source.acquire({&b, kPlainHostAllocation, 32 * kKiB}).chunk;
  a.epoch.fetch_add(1);
  source.forget(of_a);
  source.forget_slabs(&a);
  EXPECT_EQ(source.pinned_reserved_bytes, kSlabBytes);
  EXPECT_EQ(blocks.containing(address(of_b) + 1), of_b);
  source.release(of_b);
  EXPECT_EQ(source.pinned_reserved_bytes, 0u);
}

TEST_F(BlockSourceTest, AForkedChildMakesNoCall) {
  device_block();
  piece();
  gate.captures = 1;
  source.release(device_block());
  const int before = driver.all_calls();
  gate.captures = 0;
  gate.closed = true;
  source.before_fork();
  source.after_fork_in_child();
  source.release_postponed();
  EXPECT_EQ(source.pinned_reserved_bytes, 0u);
  EXPECT_EQ(driver.all_calls(), before);
}

// --- Memory from the program's own calls

TEST_F(BlockSourceTest, AdoptedMemoryIsKnownAndCounted) {
  CUdeviceptr got = 0;
  ASSERT_EQ(functions.memory_allocate(&got, 1000), kSuccess);
  Block* block = source.adopt({&a, kDeviceTraits, 1024}, got);
  EXPECT_EQ(blocks.containing(got + 1023), block);
  EXPECT_EQ(device.reserved_bytes, 1024u);
  blocks.hide(block);
  EXPECT_EQ(blocks.table.find(got), nullptr);
  EXPECT_EQ(blocks.containing(got + 1), nullptr);
  blocks.show(block, BlockState::live);
  EXPECT_EQ(block->state, BlockState::live);
  EXPECT_EQ(blocks.containing(got + 1), block);
  blocks.hide(block);
  source.freed_by_program(block);
  blocks.put_away(block);
  EXPECT_EQ(device.reserved_bytes, 0u);
  EXPECT_EQ(driver.live_allocations(), 1u) << "the program's own call is its own";
}

TEST_F(BlockSourceTest, SmallPinnedMemoryOfTheProgramIsNoPiece) {
  Block* block = source.adopt({&a, kPlainHostAllocation, 512}, 0x5000);
  EXPECT_EQ(block->slab, nullptr);
  EXPECT_EQ(source.pinned_reserved_bytes, 512u);
  source.forget(block);
  EXPECT_EQ(source.pinned_reserved_bytes, 0u);
}

// --- Fences

TEST_F(BlockSourceTest, AFenceWaitsForEveryContextThatIsThere) {
  CUstream stream = driver.new_stream(true);
  driver.enqueue(stream);
  Block* block = device_block();
  BlockSource::Fence fence;
  fence.push_back({&a, a.clock.now()});
  fence.push_back({&b, b.clock.now()});
  EXPECT_EQ(source.settled(block, fence), Settled::no);
  b.alive = false;
  EXPECT_EQ(source.settled(block, fence), Settled::no);
  EXPECT_EQ(fence.size(), 1u) << "what has gone is not asked again";
  driver.end_all_work();
  EXPECT_EQ(source.settled(block, fence), Settled::yes);
  EXPECT_TRUE(fence.empty());
  source.release(block);
}

TEST_F(BlockSourceTest, NothingIsAskedInAContextThatIsBeingEnded) {
  Block* block = device_block();
  BlockSource::Fence fence;
  fence.push_back({&b, b.clock.now()});
  b.ending = true;
  const int calls = driver.all_calls();
  EXPECT_EQ(source.settled(block, fence), Settled::no);
  EXPECT_EQ(driver.all_calls(), calls);
  EXPECT_EQ(b.own_calls, 0);
  b.ending = false;
  EXPECT_EQ(source.settled(block, fence), Settled::yes) << "it lives on";
  EXPECT_GT(driver.all_calls(), calls);
  source.release(block);
}

TEST_F(BlockSourceTest, AFenceThatCannotBeAskedSettlesNever) {
  Block* block = device_block();
  BlockSource::Fence fence;
  fence.push_back({&a, a.clock.now()});
  driver.fail_always("cuEventRecord");
  EXPECT_EQ(source.settled(block, fence), Settled::never);
  source.release(block);
}

// --- Threads

TEST_F(BlockSourceTest, ThreadsShareSlabsWithoutOverlap) {
  const unsigned seed = new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  std::mutex mutex;
  std::map<std::uintptr_t, std::uintptr_t> taken;  // first byte -> end
  std::atomic<int> errors{0};
  std::atomic<bool> over{false};
  const auto work = [&](unsigned id) {
    FakeDriver::make_current(a.handle());
    std::mt19937 random(seed + id);
    std::vector<Block*> held;
    const auto release = [&](std::size_t i) {
      {
        std::lock_guard hold(mutex);
        taken.erase(address(held[i]));
      }
      source.release(held[i]);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
    };
    for (int step = 0; step < 3000; ++step) {
      if (random() % 2 || held.empty()) {
        const std::uint64_t bytes = random() % 8 ? 512 * (1 + random() % 4) * 16 : 64 * kKiB;
        Block* block = source.acquire({&a, random() % 4 ? kPlainHostAllocation : kDeviceTraits, bytes}).chunk;
        if (blocks.containing(address(block) + bytes / 2) != block) ++errors;
        std::lock_guard hold(mutex);
        auto after = taken.lower_bound(address(block));
        if (after != taken.end() && after->first < address(block) + bytes) ++errors;
        if (after != taken.begin() && std::prev(after)->second > address(block)) ++errors;
        taken[address(block)] = address(block) + bytes;
        held.push_back(block);
      } else {
        release(random() % held.size());
      }
      if (random() % 50 == 0) source.release_postponed();
    }
    while (!held.empty()) release(0);
  };
  std::vector<std::thread> threads;
  for (unsigned id = 0; id < 4; ++id) threads.emplace_back(work, id);
  std::thread capturer([&] {
    while (!over) {
      gate.captures.fetch_add(1);
      std::this_thread::yield();
      gate.captures.fetch_sub(1);
      std::this_thread::yield();
    }
  });
  for (auto& thread : threads) thread.join();
  over = true;
  capturer.join();
  source.release_postponed();
  EXPECT_EQ(errors, 0);
  expect_nothing_left();
}

}  // namespace
}  // namespace cistern::cuda
