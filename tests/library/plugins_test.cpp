// The allocators of frameworks in a program that links the library, which sees no stream begin or end.
#include <cistern/plugins.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "tests/library/driver_calls.hpp"
#include "tests/library/kinds.hpp"

namespace {

constexpr ssize_t kBytes = 5000;

class Plugins : public testing::Test {
 protected:
  void SetUp() override {
    if (!make_cuda_current()) GTEST_SKIP() << "no simulated driver";
    // A second run of the same suite (CMakeLists.txt).
    if (getenv("POOLS_HAVE_WHOLE_BLOCKS")) ASSERT_EQ(cistern_torch_use_whole_blocks(), CISTERN_OK);
  }
};

cistern_pool_statistics figures(cistern_pool* pool) {
  auto of = cistern::sized<cistern_pool_statistics>();
  EXPECT_EQ(cistern_pool_get_statistics(pool, &of), CISTERN_OK);
  return of;
}

cistern_pool* torch_pool() {
  cistern_pool* pool = nullptr;
  EXPECT_EQ(cistern_torch_pool(&pool), CISTERN_OK);
  return pool;
}

TEST_F(Plugins, TorchsPoolHasItsBlocks) {
  void* const block = cistern_torch_alloc(kBytes, 0, nullptr);
  void* const of_other_device = cistern_torch_alloc(kBytes, 1, nullptr);
  ASSERT_TRUE(block && of_other_device);
  EXPECT_EQ(figures(torch_pool()).live_bytes, 2U * kBytes);
  cistern_torch_free(block, kBytes, 0, nullptr);
  cistern_torch_free(of_other_device, kBytes, 1, nullptr);
  EXPECT_EQ(figures(torch_pool()).live_blocks, 0u);
  void* const again = cistern_torch_alloc(kBytes, 0, nullptr);
  EXPECT_EQ(again, block);
  cistern_torch_free(again, kBytes, 0, nullptr);
}

TEST_F(Plugins, TheyCutSegmentsFromTheBeginningOrNotAtAll) {
  EXPECT_NE(torch_pool(), nullptr);
  void* const block = cistern_torch_alloc(kBytes, 0, nullptr);
  const bool cuts = !getenv("POOLS_HAVE_WHOLE_BLOCKS");
  EXPECT_EQ(cistern_torch_use_whole_blocks(), cuts ? CISTERN_TOO_LATE : CISTERN_OK);
  EXPECT_EQ(figures(torch_pool()).segments > 0, cuts);
  cistern_torch_free(block, kBytes, 0, nullptr);
}

TEST_F(Plugins, WithoutTorchThereIsNoException) {
  EXPECT_EQ(cistern_torch_alloc(0, 0, nullptr), nullptr);
  EXPECT_EQ(cistern_torch_alloc(-1, 0, nullptr), nullptr);
  EXPECT_EQ(cistern_torch_alloc(ssize_t{1} << 50, 0, nullptr), nullptr);
  EXPECT_EQ(cistern_torch_alloc_or_null(ssize_t{1} << 50, 0, nullptr), nullptr);
  EXPECT_EQ(cistern_torch_alloc_or_null(0, 0, nullptr), nullptr);
  EXPECT_EQ(cistern_torch_alloc(kBytes, 99, nullptr), nullptr);
  cistern_torch_free(nullptr, 0, 0, nullptr);
  cistern_torch_record_stream(nullptr, nullptr);
}

TEST_F(Plugins, WhatUnseenStreamsUseIsGivenToNobody) {
  BusyStream busy;
  void* const block = cistern_torch_alloc(kBytes, 0, busy.stream);
  ASSERT_TRUE(block);
  cistern_torch_free(block, kBytes, 0, busy.stream);
  EXPECT_FALSE(busy.is_idle()) << "nothing waits";
  std::vector<void*> taken{cistern_torch_alloc(kBytes, 0, busy.stream), cistern_torch_alloc(kBytes, 0, nullptr)};
  for (void* const other : taken) EXPECT_NE(other, block);
  busy.let_go();
  EXPECT_EQ(DRIVER(cuCtxSynchronize)(), CUDA_SUCCESS);
  taken.push_back(cistern_torch_alloc(kBytes, 0, nullptr));
  EXPECT_EQ(taken.back(), block);
  for (void* const each : taken) cistern_torch_free(each, kBytes, 0, nullptr);
}

TEST_F(Plugins, FurtherUnseenStreamsAreWaitedForToo) {
  BusyStream busy;
  void* const block = cistern_torch_alloc(kBytes, 0, nullptr);
  cistern_torch_record_stream(block, busy.stream);
  std::atomic<bool> freed{false};
  Beside other([&] {
    make_cuda_current();
    cistern_torch_free(block, kBytes, 0, nullptr);
    freed = true;
  });
  usleep(50'000);
  EXPECT_FALSE(freed);
  busy.let_go();
  other.join();
}

TEST_F(Plugins, WhatIsWrongIsRefused) {
  cistern_pool* const torch = torch_pool();
  void* block = this;
  EXPECT_EQ(cistern_pool_allocate_on(nullptr, kBytes, 0, nullptr, &block), CISTERN_INVALID);
  EXPECT_EQ(block, nullptr);
  EXPECT_EQ(cistern_pool_allocate_on(cistern::default_pool(CISTERN_PINNED), kBytes, 0, nullptr, &block),
            CISTERN_INVALID);
  EXPECT_EQ(cistern_pool_allocate_on(torch, 0, 0, nullptr, &block), CISTERN_INVALID);
  EXPECT_EQ(cistern_pool_allocate_on(torch, kBytes, 0, nullptr, nullptr), CISTERN_INVALID);
  EXPECT_EQ(cistern_pool_deallocate_on(torch, &block, nullptr), CISTERN_INVALID);
  EXPECT_EQ(cistern_pool_deallocate_on(torch, nullptr, nullptr), CISTERN_OK);
  EXPECT_EQ(cistern_block_used_on(&block, nullptr), CISTERN_INVALID);
  EXPECT_EQ(cistern_visit_frames(0, nullptr, nullptr), CISTERN_INVALID);
}

TEST_F(Plugins, ThreadsShareTheDefaultStream) {
  std::atomic<int> wrong{0};
  const auto work = [&wrong] {
    make_cuda_current();
    for (int round = 0; round < 500; ++round) {
      void* const block = cistern_torch_alloc(kBytes + round % 3 * 1000, 0, nullptr);
      wrong += !block;
      cistern_torch_free(block, kBytes, 0, nullptr);
    }
  };
  { const Beside first(work), second(work), third(work); }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(figures(torch_pool()).live_blocks, 0u);
}

TEST_F(Plugins, ArraysGrowAndShrink) {
  auto* block = static_cast<char*>(cistern_numpy_calloc(nullptr, 10, 100));
  ASSERT_TRUE(block);
  EXPECT_EQ(std::string(block, 1000), std::string(1000, '\0'));
  memset(block, 'a', 1000);
  block = static_cast<char*>(cistern_numpy_realloc(nullptr, block, 100'000));
  ASSERT_TRUE(block);
  EXPECT_EQ(std::string(block, 1000), std::string(1000, 'a'));
  block = static_cast<char*>(cistern_numpy_realloc(nullptr, block, 10));
  EXPECT_EQ(std::string(block, 10), std::string(10, 'a'));
  cistern_numpy_free(nullptr, block, 10);
  EXPECT_EQ(cistern_numpy_calloc(nullptr, SIZE_MAX / 2, 4), nullptr);
  EXPECT_EQ(cistern_numpy_malloc(nullptr, PTRDIFF_MAX), nullptr);
  void* const empty = cistern_numpy_malloc(nullptr, 0);
  EXPECT_TRUE(empty);
  cistern_numpy_free(nullptr, cistern_numpy_realloc(nullptr, empty, 0), 0);
  cistern_numpy_free(nullptr, nullptr, 0);
}

[[gnu::noinline]] void* allocate_here() {
  void* const block = cistern_torch_alloc(12345, 0, nullptr);
  EXPECT_TRUE(block);
  return block;
}

TEST_F(Plugins, ASiteHasItsFunctionAndLine) {
  void* const block = allocate_here();
  std::uint32_t site = 0;
  cistern_visit(
      CISTERN_DEVICE,
      [](const cistern_block* of, void* found) {
        if (of->bytes == 12345) *static_cast<std::uint32_t*>(found) = of->site;
        return 0;
      },
      &site);
  ASSERT_NE(site, 0u);
  std::vector<std::string> functions;
  const auto note = [](const cistern_frame* of, void* to) {
    EXPECT_EQ(of->struct_bytes, sizeof *of);
    EXPECT_FALSE(of->is_python);
    static_cast<std::vector<std::string>*>(to)->emplace_back(of->function ? of->function : "?");
    return of->function && strstr(of->function, "TestBody") ? 1 : 0;
  };
  EXPECT_EQ(cistern_visit_frames(site, note, &functions), CISTERN_OK);
  ASSERT_FALSE(functions.empty());
  EXPECT_NE(functions[0].find("allocate_here"), std::string::npos) << functions[0];
  cistern_torch_free(block, 12345, 0, nullptr);
}

// The same of pools as anybody makes them.
TEST_F(Plugins, AQueueThatNobodySawIsWaitedForByTheNextOwner) {
  for (const cistern_kind kind : {CISTERN_DEVICE, CISTERN_PINNED}) {
    constexpr std::size_t kOwnSize = 777'777;
    BusyStream busy;
    void *block = nullptr, *other = nullptr, *last = nullptr;
    cistern_pool* const pool = cistern::default_pool(kind);
    ASSERT_EQ(cistern_pool_allocate(pool, kOwnSize, 0, &block), CISTERN_OK);
    ASSERT_EQ(cistern_pool_deallocate(pool, block, busy.stream), CISTERN_OK);
    ASSERT_EQ(cistern_pool_allocate(pool, kOwnSize, 0, &other), CISTERN_OK);
    EXPECT_NE(block, other);
    EXPECT_FALSE(busy.is_idle());
    busy.let_go();
    EXPECT_EQ(DRIVER(cuCtxSynchronize)(), CUDA_SUCCESS);
    ASSERT_EQ(cistern_pool_allocate(pool, kOwnSize, 0, &last), CISTERN_OK);
    EXPECT_EQ(block, last);
  }
}

}  // namespace
