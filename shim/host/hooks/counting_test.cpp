// Counting of what the pool does not serve, by direct calls of the hooks; nothing is interposed in this process.
#include "shim/host/counters.hpp"

#include <errno.h>
#include <gtest/gtest.h>
#include <stdint.h>
#include <stdlib.h>

#include <thread>
#include <vector>

#include "shim/host/hooks/hooks.hpp"
#include "shim/process/uncounted.hpp"

// Under a sanitizer its allocator is the one behind the hooks: too large is to be an answer, as in the C library.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }

namespace cistern::host {
namespace {

volatile std::size_t huge = PTRDIFF_MAX;

// Before anything asks who serves.
[[maybe_unused]] const int pool_is_off = setenv("CISTERN_HOST_POOL", "off", 1);

// Nothing is interposed here: only what a test does is counted, and other tests of this process leave live blocks at 0.
class HostCounters : public testing::Test {
 protected:
  void SetUp() override { reset_counters(); }
};

TEST_F(HostCounters, BirthsAndDeaths) {
  void* block = hook_malloc(100);
  void* aligned = hook_aligned_alloc(4096, 4096);
  KindFigures now = counted_figures();
  EXPECT_EQ(now.allocations, 2u);
  EXPECT_EQ(now.live_blocks, 2u);
  EXPECT_GE(now.live_bytes, 4196u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(aligned) % 4096, 0u);
  EXPECT_FALSE(now.pooled_kind);
  EXPECT_EQ(now.name, "host");
  hook_free(block);
  errno = 5;
  hook_cfree(aligned);
  hook_free(nullptr);
  EXPECT_EQ(errno, 5);
  now = counted_figures();
  EXPECT_EQ(now.frees, 2u);
  EXPECT_EQ(now.live_blocks, 0u);
  EXPECT_EQ(now.live_bytes, 0u);
  EXPECT_GE(now.peak_bytes, now.live_bytes);
}

TEST_F(HostCounters, AResizeIsNeitherBirthNorDeath) {
  void* block = hook_realloc(nullptr, 100);
  block = hook_realloc(block, 100000);
  EXPECT_EQ(counted_figures().allocations, 1u);
  EXPECT_EQ(counted_figures().frees, 0u);
  EXPECT_GE(counted_figures().live_bytes, 100000u);
  EXPECT_EQ(hook_realloc(block, huge), nullptr);
  EXPECT_EQ(counted_figures().failed, 1u);
  EXPECT_EQ(hook_realloc(block, 0), nullptr);
  EXPECT_EQ(counted_figures().frees, 1u);
  EXPECT_EQ(counted_figures().live_bytes, 0u);
}

TEST_F(HostCounters, Failures) {
  EXPECT_EQ(hook_malloc(huge), nullptr);
  EXPECT_EQ(hook_calloc(huge, 2), nullptr);
  errno = 0;
  EXPECT_EQ(hook_reallocarray(nullptr, huge, 4), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  void* block = this;
  EXPECT_EQ(hook_posix_memalign(&block, 64, huge), ENOMEM);
  EXPECT_EQ(hook_posix_memalign(&block, 3, 10), EINVAL);
  EXPECT_EQ(block, this);
  EXPECT_EQ(counted_figures().failed, 4u);
  EXPECT_EQ(counted_figures().allocations, 0u);
}

TEST_F(HostCounters, UncountedScopesNest) {
  void* block = nullptr;
  {
    Uncounted outer;
    {
      Uncounted inner;
      EXPECT_FALSE(counting());
    }
    EXPECT_TRUE(inside_allocator());
    block = hook_malloc(10);
  }
  EXPECT_TRUE(counting());
  EXPECT_FALSE(inside_allocator());
  EXPECT_EQ(counted_figures().allocations, 0u);
  {
    Uncounted scope;
    hook_free(block);
  }
  EXPECT_EQ(counted_figures().frees, 0u);
}

TEST_F(HostCounters, ManyThreadsAddUp) {
  constexpr int kThreads = 50, kRounds = 1000;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([] {
      void* kept = hook_malloc(64);
      for (int round = 0; round < kRounds; ++round) hook_free(hook_malloc(1000));
      hook_free(kept);
    });
  for (std::thread& thread : threads) thread.join();
  const KindFigures now = counted_figures();
  EXPECT_EQ(now.allocations, std::uint64_t{kThreads} * (kRounds + 1));
  EXPECT_EQ(now.frees, now.allocations);
  EXPECT_EQ(now.live_bytes, 0u);
}

TEST_F(HostCounters, ThePeakIsOffByLessThanItsBound) {
  std::vector<void*> blocks;
  for (int i = 0; i < 3000; ++i) blocks.push_back(hook_malloc(1000));
  const std::uint64_t true_peak = counted_figures().live_bytes;
  for (void* block : blocks) hook_free(block);
  for (int i = 0; i < 100; ++i) hook_free(hook_malloc(1000));
  const std::uint64_t peak = counted_figures().peak_bytes;
  EXPECT_LE(peak, true_peak);
  EXPECT_GE(peak + kSettleBytes, true_peak);
}

TEST_F(HostCounters, AForkedChildCountsFromZeroButKeepsWhatLives) {
  void* inherited = hook_malloc(5000);
  const std::uint64_t live_bytes = counted_figures().live_bytes;
  reset_counters();
  KindFigures child = counted_figures();
  EXPECT_EQ(child.allocations, 0u);
  EXPECT_EQ(child.live_blocks, 1u);
  EXPECT_EQ(child.live_bytes, live_bytes);
  EXPECT_EQ(child.peak_bytes, live_bytes);
  hook_free(inherited);
  child = counted_figures();
  EXPECT_EQ(child.frees, 1u);
  EXPECT_EQ(child.live_blocks, 0u);
}

}  // namespace
}  // namespace cistern::host
