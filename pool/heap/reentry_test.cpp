// The pool's calls of the system may reach another library's function, which allocates, frees, waits for a lock of its
// own, or forks. The pool holds no lock there, the calling thread's malloc serves on, and a forked child has a whole
// pool.
#include <errno.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "pool/base/registered_memory.hpp"
#include "pool/heap/heap.hpp"
#include "pool/heap/samples.hpp"
#include "tests/support/child.hpp"
#include "tests/support/host_pool.hpp"
#include "tests/support/random.hpp"

namespace cistern::host_pool {
namespace {

using test::get;
using test::in_child;
using test::put;

System real_system;
// Called in the middle of each call of the system.
void (*in_the_middle)() = [] {};
std::atomic<int> calls_with_a_lock{0}, calls{0};

void note_call() {
  calls_with_a_lock += locks_held != 0;
  ++calls;
  in_the_middle();
}

void stand_before_the_system() {
  real_system = region_system;
  region_system.map = [](void* at, std::size_t bytes) {
    note_call();
    return real_system.map(at, bytes);
  };
  region_system.give_back = [](void* at, std::size_t bytes) {
    note_call();
    real_system.give_back(at, bytes);
    note_call();
  };
  region_system.unmap = [](void* at, std::size_t bytes) {
    note_call();
    return real_system.unmap(at, bytes);
  };
  region_system.renew = [](void* at, std::size_t bytes) {
    note_call();
    return real_system.renew(at, bytes);
  };
  region_system.move = [](void* from, void* to, std::size_t bytes) {
    note_call();
    return real_system.move(from, to, bytes);
  };
  region_system.make_resident = [](void* at, std::size_t bytes) {
    note_call();
    real_system.make_resident(at, bytes);
  };
}

void make_addresses_scarce() {
  region_system.limit_bytes = [] { return std::uint64_t{1} << 32; };
  limits_changed();
}

// Where the pool has nothing at the moment, its caller asks the C library.
void allocate_all_sizes() {
  std::vector<std::pair<void*, std::size_t>> blocks;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{100}, std::size_t{3000}, std::size_t{30'000},
                                  std::size_t{300'000}, std::size_t{40} << 20}) {
    void* const block = get(bytes);
    if (!block) continue;
    std::memset(block, 7, std::min<std::size_t>(bytes, 4096));
    blocks.emplace_back(block, bytes);
  }
  for (const auto& [block, bytes] : blocks) EXPECT_EQ(put(block), Freed::yes);
}

// Blocks of all sizes come and go, grow and shrink, and keep their contents.
void traffic(unsigned seed, int steps) {
  std::mt19937 random(seed);
  struct Held {
    void* block = nullptr;
    std::size_t bytes = 0;
    std::uint64_t tag = 0;
  };
  std::vector<Held> all(60);
  for (int step = 0; step < steps; ++step) {
    Held& one = all[random() % all.size()];
    const unsigned order = random() % 24;
    const std::size_t bytes = 1 + random() % (std::size_t{1} << order);
    if (!one.block) {
      one = {get(bytes), bytes, random()};
      if (one.block) test::fill(one.block, bytes, one.tag);
    } else if (random() % 3) {
      ASSERT_TRUE(test::is_filled(one.block, one.bytes, one.tag));
      ASSERT_EQ(put(one.block), Freed::yes);
      one = {};
    } else if (void* const moved = reallocate(one.block, bytes)) {
      ASSERT_TRUE(test::is_filled(moved, one.bytes, one.tag, std::min(one.bytes, bytes)));
      one = {moved, bytes, random()};
      test::fill(one.block, bytes, one.tag);
    }
    if (step % 100 == 0) trim(0);
  }
  for (const Held& one : all)
    if (one.block) {
      ASSERT_TRUE(test::is_filled(one.block, one.bytes, one.tag));
      ASSERT_EQ(put(one.block), Freed::yes);
    }
}

void traffic_of_threads(unsigned seed) {
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 3; ++i) threads.emplace_back(traffic, seed + i, 4000);
  for (std::thread& one : threads) one.join();
}

TEST(HostReentry, CallsOfTheSystemComeBackToThePool) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  for (const bool scarce : {false, true})
    in_child([=] {
      const test::Live before = test::live_now();
      stand_before_the_system();
      in_the_middle = allocate_all_sizes;
      if (scarce) make_addresses_scarce();
      traffic(seed, 4000);
      traffic_of_threads(seed);
      EXPECT_GT(calls, 100);
      EXPECT_EQ(calls_with_a_lock, 0);
      in_the_middle = [] {};
      trim(0);
      EXPECT_EQ(test::live_since(before), test::Live{});
      EXPECT_EQ(test::region_fault(), "");
    });
}

// The region has to grow for a page of blocks; meanwhile memory comes back, and the thread gets a page of these blocks.
TEST(HostReentry, APageOfTheSameBlocksIsMadeMeanwhile) {
  for (const std::size_t bytes : {std::size_t{112}, std::size_t{2500}, std::size_t{30'000}})
    in_child([bytes] {
      static std::size_t wanted;
      static void* large;
      static std::vector<void*> blocks;
      wanted = bytes;
      stand_before_the_system();
      large = get(100'000 + std::size_t{4} * kSliceBytes);
      const std::uint64_t in_use_before = region_figures().in_use_bytes;
      std::vector<Slice> taken;
      const auto live = test::live_now();
      const auto take_what_is_free = [&] {
        while (region_figures().largest_free_bytes) taken.push_back(acquire_span(1).first);
      };
      in_the_middle = [] {
        if (!large) return;
        void* const goes = large;
        large = nullptr;
        ASSERT_EQ(put(goes), Freed::yes);
        for (int i = 0; i < 3; ++i) blocks.push_back(get(wanted));
      };
      // Pages that earlier tests left may have room.
      const std::size_t mapped_blocks = region_figures().mapped_bytes / wanted;
      while (large || blocks.size() < 2000) {
        ASSERT_LT(blocks.size(), mapped_blocks + 2000);
        if (large) take_what_is_free();
        blocks.push_back(get(wanted));
        if (!large) in_the_middle = [] {};
      }
      for (void* const block : blocks) ASSERT_TRUE(block);
      for (std::size_t i = 0; i < blocks.size(); ++i) test::fill(blocks[i], wanted, i);
      for (std::size_t i = 0; i < blocks.size(); ++i) EXPECT_TRUE(test::is_filled(blocks[i], wanted, i));
      const auto since = test::live_since(live);
      EXPECT_EQ(since.at(usable_bytes(blocks[0])), static_cast<std::int64_t>(blocks.size()));
      for (void* const block : blocks) EXPECT_EQ(put(block), Freed::yes);
      // No page was lost.
      trim(0);
      const std::uint64_t in_use = region_figures().in_use_bytes;
      EXPECT_LE(in_use, in_use_before + (taken.size() + 64) * kSliceBytes);
      EXPECT_EQ(test::region_fault(), "");
    });
}

TEST(HostReentry, SamplesOfEveryBlockToo) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  in_child([=] {
    const auto capture = [](std::uint32_t* site, std::uint32_t) {
      *site = 1;
      return true;
    };
    start_sampling({.interval_bytes = 1, .paced = false, .capture = capture, .now_ms = [] { return 0u; }});
    stand_before_the_system();
    in_the_middle = allocate_all_sizes;
    traffic(seed, 2000);
    traffic_of_threads(seed);
    EXPECT_EQ(calls_with_a_lock, 0);
    EXPECT_EQ(test::region_fault(), "");
  });
}

// A nested malloc while a page is made allocates until the next sample is nearer than one of the page's blocks.
TEST(HostReentry, TheWayToTheNextSampleIsUsedUpMeanwhile) {
  in_child([] {
    constexpr std::size_t kWanted = 30'000;
    static void* large = nullptr;
    static std::vector<void*> others;
    static int used_up = 0;
    const auto capture = [](std::uint32_t* site, std::uint32_t) {
      *site = 1;
      return true;
    };
    start_sampling({.interval_bytes = 100'000, .paced = false, .capture = capture, .now_ms = [] { return 0u; }});
    stand_before_the_system();
    in_the_middle = [] {
      if (!large) return;
      void* const goes = large;
      large = nullptr;
      ASSERT_EQ(put(goes), Freed::yes);
      const auto is_far = [] { return this_heap()->until_sample >= static_cast<std::int64_t>(kWanted); };
      for (int i = 0; i < 20'000 && is_far(); ++i)
        if (void* const block = get(100)) others.push_back(block);
      used_up += !is_far();
    };
    std::vector<void*> blocks;
    for (int round = 0; round < 40; ++round) {
      large = get(std::size_t{4} << 20);
      while (region_figures().largest_free_bytes) acquire_span(1);
      for (int i = 0; i < 200 && large; ++i) blocks.push_back(get(kWanted));
    }
    EXPECT_GT(used_up, 5);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      ASSERT_TRUE(blocks[i]);
      test::fill(blocks[i], kWanted, i);
    }
    for (std::size_t i = 0; i < blocks.size(); ++i) ASSERT_TRUE(test::is_filled(blocks[i], kWanted, i));
    for (void* const block : blocks) EXPECT_EQ(put(block), Freed::yes);
    for (void* const block : others) EXPECT_EQ(put(block), Freed::yes);
    EXPECT_EQ(test::region_fault(), "");
  });
}

// As the memory hooks of MPI fabrics: the lock of a registration cache is taken when pages leave, and its code
// allocates while it has it.
TEST(HostReentry, ALockThatIsTakenWhenPagesLeaveIsHeldByWhoAllocates) {
  in_child([] {
    static std::recursive_mutex cache;
    static std::atomic<bool> ended{false};
    stand_before_the_system();
    in_the_middle = [] { const std::lock_guard hold(cache); };
    std::thread user([] {
      while (!ended) {
        const std::lock_guard hold(cache);
        allocate_all_sizes();
      }
    });
    for (int i = 0; i < 300; ++i) {
      void* const block = get(std::size_t{40} << 20);
      ASSERT_TRUE(block);
      std::memset(block, 1, 4096);
      ASSERT_EQ(put(block), Freed::yes);
      trim(0);
    }
    ended = true;
    user.join();
    EXPECT_EQ(calls_with_a_lock, 0);
  });
}

int exit_code_of(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// 0: the pool of this process, which was just forked, is whole and serves.
int look_at_child(unsigned seed) {
  in_the_middle = [] {};
  alarm(60);
  if (!test::region_fault().empty()) return 2;
  traffic(seed, 300);
  if (testing::Test::HasFailure()) return 3;
  return test::region_fault().empty() ? 0 : 4;
}

TEST(HostReentry, AForkInTheMiddleOfACallByAnotherThread) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  for (const bool scarce : {false, true})
    in_child([=] {
      // The thread that works waits in the middle of a call until the other one has forked.
      static std::atomic<bool> waiting, ended;
      static std::atomic<int> forks;
      waiting = ended = false;
      forks = 0;
      static thread_local bool works = false;
      stand_before_the_system();
      in_the_middle = [] {
        if (!works || ended) return;
        const int seen = forks;
        waiting = true;
        while (forks == seen && !ended) std::this_thread::yield();
      };
      if (scarce) make_addresses_scarce();
      std::thread worker([seed] {
        works = true;
        while (!ended) traffic(seed, 200);
      });
      for (int i = 0; i < 12; ++i) {
        while (!waiting.exchange(false)) std::this_thread::yield();
        const pid_t child = fork();
        if (child == 0) _exit(look_at_child(seed + static_cast<unsigned>(i)));
        ++forks;
        EXPECT_EQ(exit_code_of(child), 0);
      }
      ended = true;
      worker.join();
      EXPECT_EQ(test::region_fault(), "");
    });
}

TEST(HostReentry, AForkInTheMiddleOfACallByTheSameThread) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  for (const bool scarce : {false, true})
    in_child([=] {
      static int forks_left;
      static bool is_child;
      forks_left = 12;
      is_child = false;
      stand_before_the_system();
      // The child goes on with the call, and ends below.
      in_the_middle = [] {
        if (is_child || forks_left == 0) return;
        --forks_left;
        const pid_t child = fork();
        if (child == 0) {
          is_child = true;
          alarm(60);
        } else {
          EXPECT_EQ(exit_code_of(child), 0);
        }
      };
      if (scarce) make_addresses_scarce();
      traffic(seed, 500);
      EXPECT_EQ(test::region_fault(), "");
      if (is_child) _exit(testing::Test::HasFailure() ? 5 : 0);
      EXPECT_EQ(forks_left, 0);
    });
}

// --- Registered and locked memory
// As a hook of a registration cache that frees what it kept for the memory that leaves.
TEST(HostReentry, ARegisteredBlockFreedInTheMiddleLosesItsPagesLater) {
  in_child([] {
    static std::vector<void*> kept;
    static int depth, deepest;
    static bool left;
    depth = deepest = 0;
    left = false;
    stand_before_the_system();
    kept = {get(100'000), get(200'000)};
    std::memset(kept[0], 1, 100'000);
    std::memset(kept[1], 1, 200'000);
    note_registered(kept[0], 100);
    note_locked(kept[1], 100);
    in_the_middle = [] {
      deepest = std::max(deepest, ++depth);
      while (!kept.empty()) {
        void* const goes = kept.back();
        kept.pop_back();
        ASSERT_EQ(put(goes), Freed::yes);
        left = true;
      }
      --depth;
    };
    const std::vector<void*> blocks = kept;
    void* const large = get(std::size_t{4} << 20);
    std::memset(large, 1, std::size_t{4} << 20);
    ASSERT_EQ(put(large), Freed::yes);
    trim(0);
    EXPECT_TRUE(left);
    EXPECT_EQ(deepest, 1) << "a call of the system in a call of the system";
    EXPECT_FALSE(there_is_chosen_work());
    EXPECT_EQ(*static_cast<char*>(blocks[0]), 0);
    EXPECT_EQ(*static_cast<char*>(blocks[1]), 0);
    EXPECT_FALSE(registered_in(blocks[1], 100).locked);
    EXPECT_EQ(calls_with_a_lock, 0);
    EXPECT_EQ(test::region_fault(), "");
  });
}

TEST(HostReentry, WorkForTheSystemKeepsErrno) {
  in_child([] {
    stand_before_the_system();
    in_the_middle = [] { errno = EINVAL; };
    void* const block = get(std::size_t{80} << 20);
    errno = 7;
    note_registered(block, 100);
    ASSERT_EQ(put(block), Freed::yes);
    EXPECT_GT(calls, 1);
    EXPECT_EQ(errno, 7);
  });
}

// --- A limit of the process comes near
void limit_to_a_mebibyte() {
  region_system.limit_bytes = [] { return std::uint64_t{1} << 20; };  // all that is mapped is too much
  limits_changed();
}

TEST(HostReentry, ShortBlocksGrowShrinkMoveAndComeBack) {
  const unsigned seed = test::new_seed();
  SCOPED_TRACE(testing::Message() << "CISTERN_TEST_SEED=" << seed);
  in_child([=] {
    static std::atomic<int> unmapped;
    unmapped = 0;
    real_system = region_system;
    region_system.unmap = [](void* at, std::size_t bytes) {
      ++unmapped;
      return real_system.unmap(at, bytes);
    };
    limit_to_a_mebibyte();
    void* const first = get(100'000);  // the region may have to grow first
    void* const block = get(100'000);
    unsigned char resident;
    EXPECT_EQ(mincore(static_cast<char*>(block) + 102'400, 4096, &resident), -1);
    EXPECT_EQ(usable_bytes(block), 102'400u);
    EXPECT_EQ(reallocate(block, 101'000), block);
    test::fill(block, 101'000, 1);
    void* const grown = reallocate(block, 130'000);  // into what was unmapped
    ASSERT_TRUE(grown);
    EXPECT_TRUE(test::is_filled(grown, 101'000, 1, 101'000));
    std::memset(grown, 1, usable_bytes(grown));
    EXPECT_EQ(put(grown), Freed::yes);
    auto* const zeroed = static_cast<char*>(allocate_zeroed(100'000));
    EXPECT_TRUE(test::is_zero(zeroed, 100'000));
    EXPECT_EQ(put(zeroed), Freed::yes);
    EXPECT_EQ(put(first), Freed::yes);
    traffic(seed, 3000);
    traffic_of_threads(seed);
    EXPECT_GT(unmapped, 100);
    EXPECT_EQ(test::region_fault(), "");
  });
}

char* end_of(void* block) { return static_cast<char*>(block) + usable_bytes(block); }

TEST(HostReentry, ShortBlocksMakeNoCallInTheMiddleOfAnother) {
  in_child([] {
    static std::vector<void*> kept;
    static int depth, deepest;
    depth = deepest = 0;
    stand_before_the_system();
    limit_to_a_mebibyte();
    for (int i = 0; i < 4; ++i) kept.push_back(get(100'000));
    in_the_middle = [] {
      deepest = std::max(deepest, ++depth);
      if (!kept.empty()) {
        void* const goes = kept.back();
        kept.pop_back();
        void* const grown = reallocate(goes, 110'000);  // into what is unmapped, or somewhere else
        ASSERT_EQ(put(grown ? grown : goes), Freed::yes);
      }
      --depth;
    };
    trim(0);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(put(get(100'000)), Freed::yes);
    EXPECT_TRUE(kept.empty());
    EXPECT_EQ(deepest, 1);
    EXPECT_EQ(test::region_fault(), "");
  });
}

// The addresses behind a short block are free for foreign mappings.
TEST(HostReentry, WhatOthersMappedBehindAShortBlockStays) {
  if (CISTERN_TEST_ASAN) GTEST_SKIP() << "there the window's memory is mapped over whatever lies there";
  in_child([] {
    limit_to_a_mebibyte();
    get(100'000);  // the region may have to grow first
    void* const block = get(100'000);
    char* const behind = end_of(block);
    ASSERT_EQ(mmap(behind, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
              behind);
    std::memset(behind, 42, 4096);
    EXPECT_EQ(put(block), Freed::yes);
    for (int i = 0; i < 50; ++i) test::fill(get(100'000), 100'000, 1);
    for (int i = 0; i < 4096; ++i) ASSERT_EQ(behind[i], 42);
    EXPECT_EQ(test::region_fault(), "");
  });
}

TEST(HostReentry, AShortBlockFreedWhileAThreadForksIsUnmappedLater) {
  in_child([] {
    limit_to_a_mebibyte();
    get(100'000);
    void* const block = get(100'000);
    region_before_fork();
    std::thread([block] { EXPECT_EQ(put(block), Freed::yes); }).join();
    region_after_fork();
    EXPECT_EQ(put(get(100'000)), Freed::yes);
    unsigned char resident;
    EXPECT_EQ(mincore(block, 4096, &resident), -1);
    EXPECT_EQ(test::region_fault(), "");
  });
}

// A filter of system calls comes: memory is mapped, and no other call is made, whatever was chosen before.
TEST(HostReentry, WithFewSystemCallsNothingIsUnmappedAnyMore) {
  in_child([] {
    static int refused;
    refused = 0;
    real_system = region_system;
    region_system.unmap = [](void* at, std::size_t bytes) {
      ++refused;
      return real_system.unmap(at, bytes);
    };
    region_system.give_back = [](void* at, std::size_t bytes) {
      ++refused;
      real_system.give_back(at, bytes);
    };
    limit_to_a_mebibyte();
    get(100'000);
    std::vector<void*> blocks;
    for (int i = 0; i < 20; ++i) blocks.push_back(get(100'000));
    EXPECT_GT(refused, 20);
    release_span(acquire_span(5000).first, 5000);
    EXPECT_TRUE(there_is_chosen_work());
    refused = 0;
    use_few_system_calls();
    for (void* const block : blocks) EXPECT_EQ(put(block), Freed::yes);
    EXPECT_FALSE(there_is_chosen_work());
    for (void*& block : blocks) {
      block = get(100'000);
      test::fill(block, usable_bytes(block), 1);
    }
    for (void* const block : blocks) EXPECT_EQ(put(block), Freed::yes);
    trim(0);
    EXPECT_EQ(refused, 0);
    EXPECT_EQ(test::region_fault(), "");
  });
}

// A block of 25 pages has two slices, and the end of the second one is not there.
TEST(HostReentry, FiguresLeaveOutWhatIsUnmappedOfShortBlocks) {
  in_child([] {
    limit_to_a_mebibyte();
    get(100'000);
    const RegionFigures before = region_figures();
    std::vector<void*> blocks;
    for (int i = 0; i < 40; ++i) blocks.push_back(get(102'400));
    const RegionFigures with = region_figures();
    EXPECT_EQ(with.in_use_bytes - before.in_use_bytes, 40u * 102'400);
    EXPECT_LE(with.peak_in_use_bytes, std::max(before.peak_in_use_bytes, with.in_use_bytes + kSliceBytes));
    EXPECT_EQ(test::region_fault(), "");
    for (void* const block : blocks) EXPECT_EQ(put(block), Freed::yes);
    EXPECT_EQ(region_figures().in_use_bytes, before.in_use_bytes);
    EXPECT_EQ(test::region_fault(), "");
  });
}

// NUMA policies and huge pages belong to pages: memory that is mapped again has none.
TEST(HostReentry, AdviceReachesWhatIsMappedAgain) {
  in_child([] {
    static std::vector<std::pair<void*, std::size_t>> advised;
    limit_to_a_mebibyte();
    get(100'000);
    void* const block = get(100'000);
    char* const end = end_of(block);
    advise_chunks([](void* memory, std::size_t bytes) { advised.emplace_back(memory, bytes); });
    advised.clear();
    EXPECT_EQ(reallocate(block, 130'000), block);
    ASSERT_EQ(advised.size(), 1u);
    EXPECT_EQ(advised[0].first, end);
    EXPECT_EQ(static_cast<char*>(advised[0].first) + advised[0].second, static_cast<char*>(block) + 2 * kSliceBytes);
  });
}

}  // namespace
}  // namespace cistern::host_pool
