// Memory inside pages of blocks goes back to the system: as much as can, live blocks keep their contents, and no block
// that went is handed out twice or taken for a live one.
#include "pool/heap/purge.hpp"

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "pool/base/page_size.hpp"
#include "pool/base/registered_memory.hpp"
#include "pool/heap/picture.hpp"
#include "tests/support/child.hpp"
#include "tests/support/host_pool.hpp"
#include "tests/support/random.hpp"
#include "tests/support/told_page_size.hpp"
#include "tests/support/worker.hpp"

namespace cistern::host_pool {
namespace {

using test::get;
using test::in_child;
using test::Live;
using test::live_now;
using test::live_since;
using test::put;
using test::ToldPageSize;
using test::Worker;

constexpr std::size_t kSizes[] = {16, 48, 112, 640, 1024, 1280, 2048, 7168, 32768};

struct Held {
  void* block;
  std::size_t bytes;
  std::uint64_t tag;
};

// Blocks of every kind of page, 4 MiB of each size; fewer while a thread forks, because malloc does not wait.
std::vector<Held> make_blocks() {
  std::vector<Held> made;
  for (const std::size_t bytes : kSizes)
    for (std::size_t sum = 0; sum < std::size_t{4} << 20; sum += bytes) {
      void* const block = get(bytes);
      if (!block) continue;
      made.push_back({block, bytes, made.size()});
      test::fill(block, bytes, made.back().tag);
    }
  return made;
}

// About one of `of` survives.
void free_most(std::vector<Held>& held, unsigned of, std::mt19937& random) {
  std::shuffle(held.begin(), held.end(), random);
  const std::size_t kept = held.size() / of;
  for (std::size_t i = kept; i < held.size(); ++i) ASSERT_EQ(put(held[i].block), Freed::yes);
  held.resize(kept);
}

void expect_filled(const std::vector<Held>& held) {
  for (const Held& one : held) {
    ASSERT_TRUE(is_live(one.block));
    ASSERT_TRUE(test::is_filled(one.block, one.bytes, one.tag)) << one.bytes;
  }
}

void free_all(const std::vector<Held>& held) {
  expect_filled(held);
  for (const Held& one : held) ASSERT_EQ(put(one.block), Freed::yes);
}

// All that is resident in pages of blocks, those of earlier tests among it: only differences say something of a test.
std::uint64_t resident_bytes() {
  std::uint64_t sum = 0;
  unsigned char resident[kSliceBytes / kLeastPageBytes];
  for (Slice at = region_begin(); at < region_end(); ++at) {
    const PageState state = page_at(at)->state;
    if (state != PageState::small && state != PageState::medium && state != PageState::interior) continue;
    if (mincore(slice_memory(at), kSliceBytes, resident) != 0) continue;
    sum += static_cast<std::uint64_t>(std::count_if(resident, std::end(resident), [](auto one) { return one & 1; })) *
           kLeastPageBytes;
  }
  return sum;
}

TEST(HostPurgeTest, WhatIsFreeInsidePagesGoesBackAndLiveBlocksStay) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  in_child([seed] {
    std::mt19937 random(seed);
    trim(0);
    const Live before = live_now();
    const std::uint64_t of_earlier_tests = resident_bytes();
    std::vector<Held> held = make_blocks();
    free_most(held, 1000, random);
    std::uint64_t pages_of_live = 0;  // at most: every survivor alone in its pages
    for (const Held& one : held) pages_of_live += one.bytes + 2 * kLeastPageBytes;
    const std::uint64_t resident = resident_bytes();
    errno = 77;
    EXPECT_GT(trim(0), 0u);
    EXPECT_EQ(errno, 77);
    EXPECT_GT(purged_bytes(), std::uint64_t{4} << 20);
    EXPECT_LT(resident_bytes(), of_earlier_tests + pages_of_live + (1 << 20));
    EXPECT_GT(resident - resident_bytes(), std::uint64_t{4} << 20);
    EXPECT_EQ(trim(0), 0u);  // there is nothing more
    expect_filled(held);
    Live live;
    for (const Held& one : held) test::count_block(live, one.block, 1);
    EXPECT_EQ(live_since(before), live);

    // All of it is handed out again, each block once, before a page more is taken.
    const std::uint64_t page_bytes = test::page_bytes_now();
    std::set<const void*> seen;
    for (const Held& one : held) seen.insert(one.block);
    std::vector<Held> more = make_blocks();
    for (const Held& one : more) ASSERT_TRUE(seen.insert(one.block).second);
    EXPECT_LT(test::page_bytes_now(), page_bytes + std::size(kSizes) * (6 << 20) - (std::uint64_t{10} << 20));
    expect_filled(held);
    free_all(more);
    free_all(held);
    EXPECT_EQ(live_since(before), Live{});
    trim(0);
    EXPECT_EQ(purged_bytes(), 0u);
    EXPECT_EQ(test::region_fault(), "");
  });
}

// --- What is said of purged blocks
TEST(HostPurgeTest, APurgedBlockIsFreeAndItsSecondFreeIsTold) {
  in_child([] {
    std::mt19937 random(1);
    std::vector<Held> held = make_blocks();
    const std::vector<Held> all = held;
    free_most(held, 300, random);
    std::set<const void*> live;
    for (const Held& one : held) live.insert(one.block);
    trim(0);
    std::vector<char> table(Picture::table_bytes());
    Picture picture;
    ASSERT_TRUE(picture.take(table.data(), table.size()));
    std::size_t told = 0;
    for (std::size_t i = 0; i < all.size(); i += 1 + random() % 50) {  // each is looked for in every list
      const Held& one = all[i];
      PictureBlock seen;
      if (live.count(one.block)) {
        EXPECT_TRUE(picture.find(address_of(one.block), seen) && seen.live);
        EXPECT_FALSE(whereabouts(one.block).free);
        continue;
      }
      EXPECT_FALSE(is_live(one.block));
      EXPECT_TRUE(whereabouts(one.block).free);
      EXPECT_FALSE(picture.find(address_of(one.block), seen) && seen.live);
      const Freed freed = put(one.block);
      EXPECT_NE(freed, Freed::yes);
      told += freed == Freed::double_free;
    }
    EXPECT_GT(told, 100u);
    Worker().run([&] {
      for (std::size_t i = 0; i < all.size(); i += 1 + random() % 50)
        if (!live.count(all[i].block)) {
          EXPECT_NE(put(all[i].block), Freed::yes);
        }
    });
    free_all(held);
  });
}

// --- What is not purged
TEST(HostPurgeTest, OnlyWholePagesOfTheSystemGo) {
  for (const std::size_t told : {std::size_t{16384}, std::size_t{65536}, std::size_t{1} << 20})
    in_child([told] {
      const ToldPageSize page(told);
      std::mt19937 random(1);
      std::vector<Held> held = make_blocks();
      free_most(held, 300, random);
      static std::size_t unit;
      static std::atomic<int> wrong;
      unit = told;
      const auto real = region_system.give_back;
      static decltype(real) give_back = real;
      region_system.give_back = [](void* at, std::size_t bytes) {
        if (page_at(static_cast<Slice>(slice_number(at)))->state != PageState::absent)
          wrong += address_of(at) % unit != 0 || bytes % unit != 0;
        give_back(at, bytes);
      };
      trim(0);
      EXPECT_EQ(wrong, 0);
      EXPECT_EQ(purged_bytes() == 0, told > kSliceBytes);
      free_all(make_blocks());
      free_all(held);
    });
}

TEST(HostPurgeTest, MemoryThatIsRegisteredOrLockedStays) {
  in_child([] {
    trim(0);
    std::vector<Held> held;
    for (int i = 0; i < 600; ++i) held.push_back({get(600), 600, 1});
    std::sort(held.begin(), held.end(), [](const Held& a, const Held& b) { return a.block < b.block; });
    void* const keeper = held[340].block;
    std::memset(held[350].block, 7, 600);
    note_registered(held[350].block, 100);
    for (const Held& one : held)
      if (one.block != keeper) put(one.block);
    const Page* const page = page_at(static_cast<Slice>(slice_number(keeper)));
    trim(0);
    EXPECT_EQ(purged_in(*page), 0u);
    forget_registered(held[350].block, 100);
    trim(0);
    EXPECT_NE(purged_in(*page), 0u);
    note_all_locked(true);
    const std::uint64_t before = purged_bytes();
    std::vector<Held> more = make_blocks();
    std::mt19937 random(1);
    free_most(more, 300, random);
    trim(0);
    EXPECT_LE(purged_bytes(), before);
  });
}

TEST(HostPurgeTest, WithFewSystemCallsNothingGoes) {
  in_child([] {
    trim(0);
    std::mt19937 random(1);
    std::vector<Held> held = make_blocks();
    free_most(held, 300, random);
    use_few_system_calls();
    static std::atomic<int> calls;
    region_system.give_back = [](void*, std::size_t) { ++calls; };
    trim(0);
    EXPECT_EQ(calls, 0);
    EXPECT_EQ(purged_bytes(), 0u);
  });
}

// --- Who purges
std::atomic<std::uint64_t> clock_ns{0};

TEST(HostPurgeTest, WhatIsQuietForLongGoesBackByItself) {
  in_child([] {
    constexpr std::uint64_t kSecondNs = 1'000'000'000;
    clock_ns = region_system.now_ns();  // earlier tests read it
    region_system.now_ns = [] { return clock_ns.load(); };
    give_back_after(10 * kSecondNs);
    trim(0);
    std::mt19937 random(1);
    std::vector<Held> held = make_blocks();
    free_most(held, 300, random);
    const std::uint64_t resident = resident_bytes();
    // Blocks of one size come and go, as many in each second; their pages stay.
    std::vector<Held> busy;
    for (int second = 0; second < 16; ++second) {
      for (int i = 0; i < 30000; ++i) busy.push_back({get(208), 208, 0});
      for (const Held& one : busy) test::fill(one.block, one.bytes, one.tag);
      if (second == 4) {
        EXPECT_EQ(purged_bytes(), 0u);
      }
      if (second % 3 == 2) {
        free_all(busy);
        busy.clear();
      }
      clock_ns += kSecondNs;
    }
    EXPECT_GT(purged_bytes(), std::uint64_t{4} << 20);
    EXPECT_LT(resident_bytes() + (10 << 20), resident);
    free_all(busy);
    free_all(held);
    EXPECT_EQ(test::region_fault(), "");
  });
}

TEST(HostPurgeTest, OneThreadsTrimReachesTheOthersWhenTheyAllocate) {
  std::mt19937 random(1);
  Worker worker;
  std::vector<Held> held, more;
  trim(0);
  worker.run([&] {
    held = make_blocks();
    free_most(held, 300, random);
  });
  const std::uint64_t before = purged_bytes();
  trim(0);
  EXPECT_EQ(purged_bytes(), before);  // the pages are another thread's
  worker.run([&] {
    for (int i = 0; i < 40000; ++i) more.push_back({get(5000), 5000, 0});
    for (const Held& one : more) ASSERT_EQ(put(one.block), Freed::yes);
  });
  EXPECT_GT(purged_bytes(), before + (4 << 20));
  worker.run([&] { free_all(held); });
}

TEST(HostPurgeTest, WhatEndedThreadsLeftGoesBack) {
  std::mt19937 random(1);
  trim(0);
  const Live before = live_now();
  const std::uint64_t purged_before = purged_bytes();
  std::vector<Held> held[5];
  for (auto& own : held)
    Worker().run([&] {
      own = make_blocks();
      free_most(own, 300, random);
    });
  const std::uint64_t resident = resident_bytes();
  trim(0);
  EXPECT_GT(purged_bytes(), purged_before + (10 << 20));
  EXPECT_LT(resident_bytes() + (10 << 20), resident);
  for (auto& own : held) free_all(own);
  EXPECT_EQ(live_since(before), Live{});
  Worker().run([] { free_all(make_blocks()); });
  EXPECT_EQ(test::region_fault(), "");
}

// --- What a thread of the program's own does not do
constexpr std::uint64_t kSecond = 1'000'000'000;

void take_over_clock() {
  clock_ns = region_system.now_ns();
  region_system.now_ns = [] { return clock_ns.load(); };
  the_pool.purges.next_question_ns = 0;
  the_pool.purges.pause_ns = 0;
}

TEST(HostPurgeTest, WhatNobodyUsedForLongGoesBackFromAnyThread) {
  in_child([] {
    take_over_clock();
    trim(0);
    std::mt19937 random(1);
    std::vector<Held> left, own = make_blocks();
    free_most(own, 300, random);
    Worker().run([&] {
      left = make_blocks();
      free_most(left, 300, random);
    });
    void* const large = get(std::size_t{32} << 20);
    ASSERT_EQ(put(large), Freed::yes);
    const std::uint64_t purged = purged_bytes(), dirty = region_figures().dirty_bytes,
                        maintained = returned_bytes(Why::maintenance);
    Worker cleaner;
    cleaner.run([&] {
      EXPECT_EQ(trim_unused(10 * kSecond), 0u);
      clock_ns += 11 * kSecond;
      std::uint64_t bytes = trim_unused(10 * kSecond);  // the first look at pages
      bytes += trim_unused(10 * kSecond);
      EXPECT_GT(bytes, std::uint64_t{36} << 20);
      EXPECT_EQ(returned_bytes(Why::maintenance), maintained + bytes);
    });
    EXPECT_LT(region_figures().dirty_bytes + (30 << 20), dirty);
    EXPECT_GT(purged_bytes(), purged + (4 << 20)) << "of the thread that ended";
    EXPECT_LT(purged_bytes(), purged + (36 << 20)) << "not of the one that lives";
    // Nothing is as it was: blocks that were purged are handed out again.
    std::vector<Held> more = make_blocks();
    free_all(more);
    free_all(left);
    free_all(own);
    EXPECT_EQ(test::region_fault(), "");
  });
}

TEST(HostPurgeTest, WhatSomebodyUsesStays) {
  in_child([] {
    take_over_clock();
    trim(0);
    Worker cleaner;
    std::vector<Held> left;
    std::mt19937 random(1);
    for (int round = 0; round < 4; ++round) {
      // A thread ends and the next one takes its heap over; a large block is freed, and taken again.
      Worker().run([&] {
        free_all(left);
        left = make_blocks();
        free_most(left, 300, random);
      });
      ASSERT_EQ(put(get(std::size_t{32} << 20)), Freed::yes);
      clock_ns += 6 * kSecond;
      cleaner.run([] { EXPECT_EQ(trim_unused(10 * kSecond), 0u); });
    }
    free_all(left);
  });
}

TEST(HostPurgeTest, WhereMemoryIsScarceAllThatIsFreeGoesBackAtOnce) {
  in_child([] {
    take_over_clock();
    give_back_after(100 * kSecond);
    trim(0);
    static int questions = 0;
    static bool scarce = false;
    ask_when_scarce([] { return ++questions, scarce; });
    std::mt19937 random(1);
    std::vector<Held> own = make_blocks(), more;
    free_most(own, 300, random);
    const auto allocate_some = [&] {
      for (int i = 0; i < 6000; ++i) more.push_back({get(5000), 5000, 0});
      for (const Held& one : more) ASSERT_EQ(put(one.block), Freed::yes);
      more.clear();
    };
    allocate_some();
    EXPECT_EQ(questions, 0) << "the first second";
    clock_ns += 2 * kSecond;
    allocate_some();
    EXPECT_EQ(questions, 1) << "once a second";
    EXPECT_EQ(purged_bytes(), 0u);
    scarce = true;
    clock_ns += 2 * kSecond;
    allocate_some();
    EXPECT_EQ(questions, 2);
    EXPECT_GT(purged_bytes(), std::uint64_t{4} << 20);
    EXPECT_GT(returned_bytes(Why::pressure), std::uint64_t{4} << 20);
    // Where nothing comes back it is asked less and less often.
    for (int second = 0; second < 200; ++second) {
      clock_ns += kSecond;
      relieve_if_scarce(the_pool.purges.is_scarce);
    }
    EXPECT_LT(questions, 20);
    EXPECT_GT(questions, 6);
    free_all(own);
    EXPECT_EQ(test::region_fault(), "");
  });
}

TEST(HostPurgeTest, WhatIsReservedStaysWhereMemoryIsScarce) {
  in_child([] {
    trim(0);
    ASSERT_EQ(reserve_spans(64, 4), 4u);
    const std::uint64_t dirty = region_figures().dirty_bytes;
    relieve();
    trim_unused(0);
    EXPECT_GE(region_figures().dirty_bytes, std::uint64_t{4} * 64 * kSliceBytes);
    EXPECT_LE(region_figures().dirty_bytes, dirty);
    trim(0);
    EXPECT_EQ(region_figures().dirty_bytes, 0u);
  });
}

// --- Races
// While the system takes pieces, a foreign function allocates, frees the last block of the page, trims, forks.
TEST(HostPurgeTest, CallsOfTheSystemComeBackToThePool) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  in_child([seed] {
    static std::mt19937 random(seed);
    static std::vector<Held> held, made;
    static const auto give_back = region_system.give_back;
    static bool nested = false;
    static int forks = 0;
    const Live before = live_now();
    held = make_blocks();
    free_most(held, 200, random);
    region_system.give_back = [](void* at, std::size_t bytes) {
      EXPECT_EQ(locks_held, 0);
      if (!nested) {
        nested = true;
        const Slice slice = static_cast<Slice>(slice_number(at));
        for (std::size_t i = 0; i < held.size();) {
          const Slice its = static_cast<Slice>(slice_number(held[i].block));
          if (its <= slice && its + 4 > slice && random() % 2) {
            free_all({held[i]});
            held[i] = held.back();
            held.pop_back();
          } else {
            ++i;
          }
        }
        for (int i = 0; i < 20; ++i) {
          const std::size_t bytes_of_one = kSizes[random() % std::size(kSizes)];
          void* const block = get(bytes_of_one);
          if (!block) continue;
          made.push_back({block, bytes_of_one, random()});
          test::fill(block, bytes_of_one, made.back().tag);
        }
        trim(0);
        if (random() % 500 == 0 && forks++ < 3) in_child([] { expect_filled(made); });
        nested = false;
      }
      give_back(at, bytes);
    };
    for (int round = 0; round < 4; ++round) {
      trim(0);
      expect_filled(held);
      expect_filled(made);
      std::vector<Held> more = make_blocks();
      held.insert(held.end(), more.begin(), more.end());
      free_most(held, 100, random);
    }
    region_system.give_back = give_back;
    free_all(held);
    free_all(made);
    EXPECT_EQ(live_since(before), Live{});
    EXPECT_EQ(test::region_fault(), "");
  });
}

TEST(HostPurgeTest, TrimsBesideThreadsThatAllocateAndFree) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  const Live before = live_now();
  std::atomic<bool> stop{false};
  std::vector<std::thread> trimmers, threads;
  for (int i = 0; i < 2; ++i)
    trimmers.emplace_back([&, i] {
      test::prepare_end_of_heap();
      while (!stop) {
        if (i) {
          trim(0);
        } else {
          trim_unused(1);  // pages that two looks find unchanged
          relieve();
        }
      }
    });
  std::atomic<void*> passed[64] = {};
  for (unsigned t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(seed + t);
      for (int round = 0; round < 2; ++round) {
        std::vector<Held> held = make_blocks();
        free_most(held, 20, random);
        for (auto& place : passed)  // others free some
          if (void* const block = place.exchange(get(kSizes[random() % 5]))) {
            ASSERT_EQ(put(block), Freed::yes);
          }
        std::vector<Held> more = make_blocks();
        free_most(more, 50, random);
        free_all(held);
        free_all(more);
      }
    });
  for (std::thread& one : threads) one.join();
  stop = true;
  for (std::thread& one : trimmers) one.join();
  for (auto& place : passed)
    if (void* const block = place.load()) {
      ASSERT_EQ(put(block), Freed::yes);
    }
  EXPECT_EQ(live_since(before), Live{});
  EXPECT_EQ(test::region_fault(), "");
}

TEST(HostPurgeTest, ForksBesideTrims) {
  if (CISTERN_TEST_TSAN) GTEST_SKIP() << "ThreadSanitizer allows no new threads in a child of a process with threads";
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const Live before = live_now();
  std::vector<Held> held = make_blocks();
  free_most(held, 100, random);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 2; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 own(seed + t);
      while (!stop) {
        std::vector<Held> more = make_blocks();
        free_most(more, 100, own);
        t ? trim(0) : trim_unused(1);
        for (const Held& one : more) ASSERT_EQ(put(one.block), Freed::yes);
      }
    });
  for (int i = 0; i < 12; ++i)
    in_child([&] {
      trim(0);
      expect_filled(held);
      std::thread([&] {
        std::vector<Held> more = make_blocks();
        trim(0);
        free_all(more);
        free_all(held);
      }).join();
      trim(0);
      EXPECT_EQ(test::region_fault(), "");
    });
  stop = true;
  for (std::thread& one : threads) one.join();
  free_all(held);
  EXPECT_EQ(live_since(before), Live{});
}

// A fork cuts a thread off that takes blocks out of a list: the notes say already that they are purged.
TEST(HostPurgeTest, AThreadThatTheForkCutOffWhileItPurgedLeavesNoBlockTwice) {
  if (CISTERN_TEST_TSAN) GTEST_SKIP() << "ThreadSanitizer allows no new threads in a child of a process with threads";
  Worker worker;
  std::vector<Held> held;
  Block* whole_list = nullptr;
  Page* page = nullptr;
  unsigned handed_out = 0;
  worker.run([&] {
    trim(0);
    for (int i = 0; i < 500; ++i) held.push_back({get(128), 128, static_cast<std::uint64_t>(i)});
    for (const Held& one : held) test::fill(one.block, one.bytes, one.tag);
    while (held.size() > 100) {
      put(held.back().block);
      held.pop_back();
    }
    put_back_lists(*this_heap());
    page = page_at(static_cast<Slice>(slice_number(held.front().block)));
    whole_list = page->free_blocks;
    handed_out = page->handed_out();
    std::vector<Block*> links;
    for (Block* at = whole_list; at; at = at->next) links.push_back(at);
    purge(*this_heap());
    ASSERT_NE(purged_in(*page), 0u);
    // As it was in the middle: the notes are written, the list is whole.
    for (std::size_t i = 0; i < links.size(); ++i) {
      links[i]->next = i + 1 < links.size() ? links[i + 1] : nullptr;
      links[i]->mark = the_pool.window.free_mark;
    }
    page->free_blocks = whole_list;
    set_handed_out(*page, handed_out, static_cast<std::uint16_t>(handed_out));
  });
  in_child([&] {
    std::thread([&] {
      expect_filled(held);
      std::set<void*> seen;
      for (const Held& one : held) seen.insert(one.block);
      for (int i = 0; i < 5000; ++i) ASSERT_TRUE(seen.insert(get(128)).second);
      free_all(held);
    }).join();
  });
  worker.run([&] {
    set_handed_out(*page, handed_out + count_purged(*page), static_cast<std::uint16_t>(handed_out));
    Block** at = &page->free_blocks;
    while (Block* const block = *at) {
      if (is_purged(*page, number_of_block(*page, block))) {
        *at = block->next;
      } else {
        at = &block->next;
      }
    }
    free_all(held);
  });
}

}  // namespace
}  // namespace cistern::host_pool
