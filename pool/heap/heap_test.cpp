// Heaps: blocks of a class do not overlap and come back, and pages come back too. Remote frees reach the owner, and
// other threads use what an ended thread leaves behind. The counts are exact at every step.
#include "pool/heap/heap.hpp"

#include <errno.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "tests/support/child.hpp"
#include "tests/support/host_pool.hpp"
#include "tests/support/random.hpp"
#include "tests/support/worker.hpp"

namespace cistern::host_pool {
namespace {

using test::get;
using test::in_new_thread;
using test::Live;
using test::live_now;
using test::live_since;
using test::page_bytes_now;
using test::put;
using test::region_fault;
using test::Worker;

std::vector<void*> get_many(std::size_t bytes, std::size_t count) {
  std::vector<void*> blocks(count);
  for (void*& block : blocks) block = get(bytes);
  return blocks;
}

void put_all(std::vector<void*>& blocks) {
  for (void* block : blocks) ASSERT_EQ(put(block), Freed::yes);
  blocks.clear();
}

std::uint64_t in_use_now() { return region_figures().in_use_bytes; }

// `body` runs again and again, with threads that end, in the same memory. The number of heaps that wait
// for an heir is bounded, so the first rounds are for those.
template <class Body>
void expect_no_growth(Body body) {
  constexpr int kFirst = 8, kMore = 8;
  for (int round = 0; round < kFirst && !testing::Test::HasFailure(); ++round) body();
  const std::uint64_t in_use = in_use_now();
  for (int round = 0; round < kMore && !testing::Test::HasFailure(); ++round) body();
  EXPECT_LE(in_use_now(), in_use + (std::uint64_t{1} << 20));
  EXPECT_EQ(region_fault(), "");
}

TEST(HostHeapTest, BlocksOfEveryClassAreApartAndKeepTheirContents) {
  const Live before = live_now();
  in_new_thread([&] {
    for (unsigned id = 0; id < kClasses; ++id) {
      const std::size_t bytes = class_bytes(id);
      const std::size_t count = page_capacity(id) * 2 + 3;
      std::vector<void*> blocks = get_many(bytes, count);
      for (std::size_t i = 0; i < count; ++i) test::fill(blocks[i], bytes, i);
      for (std::size_t i = 0; i < count; ++i) ASSERT_TRUE(test::is_filled(blocks[i], bytes, i)) << bytes;
      ASSERT_EQ(live_since(before), (Live{{bytes, static_cast<std::int64_t>(count)}}));
      put_all(blocks);
      ASSERT_EQ(live_since(before), Live{}) << bytes;
    }
  });
  EXPECT_EQ(region_fault(), "");
}

// A search for pointers to live memory finds the program's pointers alone.
TEST(HostHeapTest, KeepsNoAddressOfALiveBlock) {
  in_new_thread([] {
    for (const std::size_t bytes : {std::size_t{64}, std::size_t{1100}, std::size_t{4096}, std::size_t{20480}}) {
      std::vector<void*> blocks = get_many(bytes, 100);
      put_all(blocks);
      blocks = get_many(bytes, 100);
      const std::set<std::uintptr_t> live = [&] {
        std::set<std::uintptr_t> addresses;
        for (const void* block : blocks) addresses.insert(address_of(block));
        return addresses;
      }();
      const auto* const words = reinterpret_cast<const std::uintptr_t*>(this_heap());
      for (std::size_t i = 0; i < sizeof(Heap) / sizeof *words; ++i) {
        const auto next = live.upper_bound(words[i]);
        EXPECT_FALSE(next != live.begin() && words[i] - *std::prev(next) < bytes) << bytes << " bytes, word " << i;
      }
      put_all(blocks);
    }
  });
}

TEST(HostHeapTest, WhatIsFreedInAnyOrderServesAgain) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  in_new_thread([&] {
    std::mt19937 random(seed);
    for (const std::size_t bytes : {std::size_t{16}, std::size_t{112}, std::size_t{4096}, std::size_t{20480}}) {
      const std::size_t count = page_capacity(class_of(bytes)) * 5;
      std::uint64_t pages_once = 0;
      for (int round = 0; round < 6; ++round) {
        std::vector<void*> blocks = get_many(bytes, count);
        EXPECT_EQ(std::set<void*>(blocks.begin(), blocks.end()).size(), count);
        if (round == 0) pages_once = page_bytes_now();
        // A page of medium blocks that has one free block only is not visited yet.
        const std::size_t asleep = is_medium(class_of(bytes)) ? page_slices(class_of(bytes)) * kSliceBytes : 0;
        EXPECT_LE(page_bytes_now(), pages_once + asleep) << bytes;
        if (round % 3 == 1) std::reverse(blocks.begin(), blocks.end());
        if (round % 3 == 2) std::shuffle(blocks.begin(), blocks.end(), random);
        put_all(blocks);
      }
    }
  });
}

TEST(HostHeapTest, EmptyPagesGoBackButForAFew) {
  expect_no_growth([] {
    in_new_thread([] {
      constexpr std::size_t kBytes = 256;
      const unsigned id = class_of(kBytes);
      const std::size_t page = page_slices(id) * kSliceBytes;
      std::vector<void*> blocks = get_many(kBytes, page_capacity(id) * 40);
      const std::uint64_t in_use = in_use_now();
      const std::uint64_t pages = account().classes[id].page_bytes;
      EXPECT_GE(pages, 40 * page);
      put_all(blocks);
      EXPECT_LE(account().classes[id].page_bytes, pages - 32 * page);
      EXPECT_LE(in_use_now(), in_use - 32 * page);
      retire_kept_pages(*this_heap());
      EXPECT_LE(account().classes[id].page_bytes, pages - 36 * page);
    });
  });
}

TEST(HostHeapTest, AFewBlocksHoldTheirPagesOnly) {
  const Live before = live_now();
  in_new_thread([&] {
    constexpr std::size_t kBytes = 64;
    const std::size_t capacity = page_capacity(class_of(kBytes));
    std::vector<void*> blocks = get_many(kBytes, capacity * 20);
    const std::uint64_t in_use = in_use_now();
    std::vector<void*> kept;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (i % (capacity * 5) == 7) {
        kept.push_back(blocks[i]);
      } else {
        ASSERT_EQ(put(blocks[i]), Freed::yes);
      }
    }
    EXPECT_EQ(live_since(before), (Live{{kBytes, static_cast<std::int64_t>(kept.size())}}));
    EXPECT_LE(in_use_now(), in_use - (20 - kept.size() - 6) * kSliceBytes);
    put_all(kept);
  });
  EXPECT_EQ(live_since(before), Live{});
}

// A freed block that waits for its thread keeps its page from going.
TEST(HostHeapTest, TrimPutsBackWhatWaitsInTheThread) {
  test::in_child([] {
    for (const std::size_t bytes : {std::size_t{1'500}, std::size_t{6'000}, kSmallMax}) {
      trim(0);
      const std::uint64_t before = region_figures().in_use_bytes;
      std::vector<void*> blocks;
      for (int i = 0; i < 1'000; ++i) blocks.push_back(test::get(bytes));
      std::vector<void*> spread;
      for (std::size_t i = 0; i < blocks.size(); i += 100) spread.push_back(blocks[i]);
      for (std::size_t i = 0; i < blocks.size(); ++i)
        if (i % 100) test::put(blocks[i]);
      for (void* const block : spread) test::put(block);
      trim(0);
      EXPECT_LE(region_figures().in_use_bytes, before) << bytes;
    }
  });
}

// --- Other threads
// Of pages of small blocks, from the 17th of a class on, and only where nothing is resident yet.
TEST(HostHeapTest, AGrowingClassHasItsPagesMadeResident) {
  static std::vector<std::pair<void*, std::size_t>> made;
  static System real;
  test::in_child([] {
    real = region_system;
    region_system.make_resident = [](void* at, std::size_t bytes) {
      made.emplace_back(at, bytes);
      real.make_resident(at, bytes);
    };
    trim(0);
    const auto pages_of = [](std::size_t bytes, unsigned pages) {
      put(get(bytes));
      this_heap()->classes[class_of(bytes)].clean_pages = 0;  // other tests may have taken some
      made.clear();
      return get_many(bytes, std::size_t{pages} * page_capacity(class_of(bytes)));
    };
    const std::vector<void*> kept = pages_of(208, 12);
    EXPECT_EQ(made.size(), 0u);
    std::vector<void*> blocks = pages_of(256, 800);
    EXPECT_GE(made.size(), 100u);  // memory that other tests left may serve first
    EXPECT_LE(made.size(), 800u - 16);
    for (const auto& [at, bytes] : made) {
      EXPECT_EQ(bytes, kSliceBytes);
      const Page& page = *page_at(static_cast<Slice>(slice_number(at)));
      EXPECT_EQ(page.size_class, class_of(256));
    }
    put_all(blocks);
    blocks = pages_of(256, 800);  // from resident memory
    EXPECT_EQ(made.size(), 0u);
    blocks = pages_of(8192, 40);  // larger than a system page
    EXPECT_EQ(made.size(), 0u);
    trim(0);
    region_system.make_resident = [](void*, std::size_t) { errno = EINVAL; };  // an older kernel
    for (void* const block : get_many(1024, 100 * 64)) std::memset(block, 1, 1024);
  });
}

TEST(HostHeapTest, BlocksFreedByAnotherThreadServeTheirOwnerAgain) {
  for (const std::size_t bytes : {std::size_t{32}, std::size_t{1000}, std::size_t{9000}, std::size_t{32768}}) {
    const Live before = live_now();
    Worker owner, other;
    std::vector<void*> blocks;
    const std::size_t count = page_capacity(class_of(bytes)) * 6;
    std::uint64_t pages_once = 0;
    for (int round = 0; round < 4; ++round) {
      owner.run([&] { blocks = get_many(bytes, count); });
      EXPECT_EQ(live_since(before), (Live{{class_bytes(class_of(bytes)), static_cast<std::int64_t>(count)}}));
      if (round == 0) pages_once = page_bytes_now();
      // Blocks that wait in the other thread's batches may cost a page or two of new ones.
      EXPECT_LE(page_bytes_now(), pages_once + 2 * page_slices(class_of(bytes)) * kSliceBytes) << bytes;
      other.run([&] { put_all(blocks); });
      EXPECT_EQ(live_since(before), Live{}) << bytes;
    }
    other.end();
    owner.end();
    EXPECT_EQ(live_since(before), Live{});
  }
}

TEST(HostHeapTest, CountsAreExactWithEachRemoteFree) {
  const Live before = live_now();
  Worker owner, other;
  std::vector<void*> blocks;
  owner.run([&] { blocks = get_many(48, 400); });
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    other.run([&] { ASSERT_EQ(put(blocks[i]), Freed::yes); });
    const auto left = static_cast<std::int64_t>(blocks.size() - i - 1);
    ASSERT_EQ(live_since(before), left ? (Live{{48, left}}) : Live{});
    ASSERT_FALSE(is_live(blocks[i]));
    if (i + 1 < blocks.size()) {
      ASSERT_TRUE(is_live(blocks[i + 1]));
    }
  }
}

TEST(HostHeapTest, AThreadThatOnlyFreesNeedsNoHeap) {
  const Live before = live_now();
  expect_no_growth([&] {
    Worker owner;
    std::vector<void*> blocks;
    owner.run([&] { blocks = get_many(80, 5000); });
    in_new_thread([&] {
      put_all(blocks);
      EXPECT_FALSE(this_heap());
    });
    EXPECT_EQ(live_since(before), Live{});
  });
}

TEST(HostHeapTest, OneThreadMakesAndAnotherFreesWithoutGrowing) {
  Worker producer, consumer;
  std::vector<void*> messages;
  std::uint64_t pages_early = 0;
  for (int round = 0; round < 300; ++round) {
    producer.run([&] {
      for (std::size_t bytes : {24, 200, 3000}) {
        std::vector<void*> more = get_many(bytes, 100);
        messages.insert(messages.end(), more.begin(), more.end());
      }
    });
    consumer.run([&] { put_all(messages); });
    if (round == 30) pages_early = page_bytes_now();
  }
  EXPECT_LE(page_bytes_now(), pages_early + 4 * kSliceBytes);
}

// --- Threads that ended
TEST(HostHeapTest, BlocksOfAThreadThatEndedAreLiveAndTheirPagesUsed) {
  const Live before = live_now();
  std::vector<void*> kept;
  constexpr std::size_t kBytes = 720;  // a class of its own
  const std::size_t bytes = class_bytes(class_of(kBytes));
  const std::size_t count = page_capacity(class_of(kBytes)) * 8;
  in_new_thread([&] {
    std::vector<void*> blocks = get_many(kBytes, count);
    for (std::size_t i = 0; i < count; ++i) {
      if (i % 2) {
        ASSERT_EQ(put(blocks[i]), Freed::yes);
      } else {
        test::fill(blocks[i], kBytes, i);
        kept.push_back(blocks[i]);
      }
    }
  });
  EXPECT_EQ(live_since(before), (Live{{bytes, static_cast<std::int64_t>(kept.size())}}));
  const std::uint64_t pages = page_bytes_now();
  in_new_thread([&] {
    std::vector<void*> blocks = get_many(kBytes, count - kept.size());
    EXPECT_LE(page_bytes_now(), pages);  // inherited, not made
    EXPECT_EQ(live_since(before), (Live{{bytes, static_cast<std::int64_t>(count)}}));
    for (std::size_t i = 0; i < blocks.size(); ++i) test::fill(blocks[i], kBytes, i + 7);
    put_all(blocks);
  });
  for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(test::is_filled(kept[i], kBytes, 2 * i));
  in_new_thread([&] { put_all(kept); });
  EXPECT_EQ(live_since(before), Live{});
}

TEST(HostHeapTest, FreesAreNotLostWhileTheOwnerEnds) {
  const Live before = live_now();
  expect_no_growth([&] {
    std::vector<void*> blocks;
    std::atomic<bool> ready{false};
    std::thread owner([&] {
      blocks = get_many(96, 3000);
      ready.store(true, std::memory_order_release);
    });
    while (!ready.load(std::memory_order_acquire)) std::this_thread::yield();
    in_new_thread([&] { put_all(blocks); });  // while the owner ends
    owner.join();
    ASSERT_EQ(live_since(before), Live{});
  });
}

TEST(HostHeapTest, FreesAreNotLostWhileAnHeirAdopts) {
  const Live before = live_now();
  expect_no_growth([&] {
    std::vector<void*> blocks;
    in_new_thread([&] { blocks = get_many(160, 2000); });
    std::thread freer([&] { put_all(blocks); });
    in_new_thread([&] {
      std::vector<void*> more = get_many(160, 2000);
      put_all(more);
    });
    freer.join();
    ASSERT_EQ(live_since(before), Live{});
  });
}

TEST(HostHeapTest, NineteenHundredBlocksAThousandOfThemOfAThreadThatEnded) {
  const Live before = live_now();
  const Account account_before = account();
  std::vector<void*> of_ended, of_this;
  in_new_thread([&] { of_ended = get_many(128, 1000); });
  Worker here;
  here.run([&] { of_this = get_many(128, 900); });
  EXPECT_EQ(live_since(before), (Live{{128, 1900}}));
  EXPECT_EQ(account().live_blocks() - account_before.live_blocks(), 1900u);
  EXPECT_EQ(account().live_bytes() - account_before.live_bytes(), 1900u * 128);
  EXPECT_EQ(account().allocations() - account_before.allocations(), 1900u);
  here.run([&] {
    put_all(of_ended);
    put_all(of_this);
  });
  EXPECT_EQ(live_since(before), Live{});
}

// Destructors of thread-specific values that run after the heap's own.
TEST(HostHeapTest, AThreadMayAllocateWhenItsHeapHasEnded) {
  if (CISTERN_TEST_TSAN) GTEST_SKIP() << "ThreadSanitizer is gone when these threads allocate";
  struct Late {
    int rounds = 0;
    bool heap_had_ended = false;
    void* block = nullptr;
  };
  static pthread_key_t key;
  ASSERT_EQ(pthread_key_create(&key,
                               [](void* value) {
                                 Late& late = *static_cast<Late*>(value);
                                 if (++late.rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
                                   pthread_setspecific(key, value);
                                 } else {
                                   late.heap_had_ended = !this_heap();
                                   late.block = get(500);
                                   test::fill(late.block, 500, 5);
                                   put(get(40));
                                 }
                               }),
            0);
  const Live before = live_now();
  std::array<Late, 6> lates;
  for (Late& late : lates)
    in_new_thread([&] {
      put(get(40));
      pthread_setspecific(key, &late);
    });
  EXPECT_EQ(live_since(before), (Live{{class_bytes(class_of(500)), 6}}));
  for (Late& late : lates) {
    EXPECT_TRUE(late.heap_had_ended);
    ASSERT_TRUE(late.block);
    EXPECT_TRUE(test::is_filled(late.block, 500, 5));
    EXPECT_EQ(put(late.block), Freed::yes);
  }
  EXPECT_EQ(live_since(before), Live{});
  pthread_key_delete(key);
}

// --- Counts at every step
TEST(HostHeapTest, CountsAreExactAtEveryStepOfThreeThreads) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const Live before = live_now();
  const std::uint64_t allocations_before = account().allocations(), bytes_before = account().allocated_bytes();
  std::array<std::unique_ptr<Worker>, 3> workers;
  std::vector<void*> blocks;
  Live model;
  std::uint64_t allocations = 0, allocated_bytes = 0;
  for (int step = 0; step < 3000; ++step) {
    std::unique_ptr<Worker>& worker = workers[random() % workers.size()];
    if (!worker || random() % 200 == 0) worker = std::make_unique<Worker>();  // the one before ends
    const bool making = blocks.size() < 20 || (random() % 100 < 52 && blocks.size() < 3000);
    const int many = 1 + static_cast<int>(random() % 20);
    worker->run([&] {
      for (int i = 0; i < many; ++i) {
        if (making) {
          static constexpr std::size_t kSizes[] = {16, 64, 500, 2000, 16384, 40000};
          blocks.push_back(get(kSizes[random() % std::size(kSizes)]));
          test::count_block(model, blocks.back(), 1);
          ++allocations;
          allocated_bytes += usable_bytes(blocks.back());
        } else if (!blocks.empty()) {
          std::swap(blocks[random() % blocks.size()], blocks.back());
          test::count_block(model, blocks.back(), -1);
          ASSERT_EQ(put(blocks.back()), Freed::yes);
          blocks.pop_back();
        }
      }
    });
    ASSERT_EQ(live_since(before), model) << "step " << step;
    ASSERT_EQ(account().allocations() - allocations_before, allocations);
    ASSERT_EQ(account().allocated_bytes() - bytes_before, allocated_bytes);
  }
  workers[0]->run([&] { put_all(blocks); });
  EXPECT_EQ(live_since(before), Live{});
}

TEST(HostHeapTest, FreeBlocksAreThoseThatThePagesCanHoldLessTheLive) {
  in_new_thread([] {
    for (const std::size_t bytes : {std::size_t{48}, std::size_t{112}, std::size_t{7168}}) {
      const unsigned id = class_of(bytes);
      std::vector<void*> blocks = get_many(bytes, page_capacity(id) * 4);
      const ClassAccount own = account().classes[id];
      const std::uint64_t pages = own.page_bytes / (page_slices(id) * kSliceBytes);
      EXPECT_EQ(own.free_blocks + own.live_blocks, pages * page_capacity(id)) << bytes;
      put_all(blocks);
    }
  });
}

}  // namespace
}  // namespace cistern::host_pool
