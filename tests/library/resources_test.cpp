// Containers over pools: std::pmr's and those with an allocator, in host and pinned memory. CUDA is the simulated
// driver.
#include <cistern/memory_resource.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <list>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tests/library/captured.hpp"
#include "tests/library/kinds.hpp"

namespace {

using cistern::pool;

struct alignas(512) Wide {
  char bytes[512];
};

bool is_aligned(const void* block, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(block) % alignment == 0;
}

// Somebody else's, with the pool's handle where ours has it.
struct Another : std::pmr::memory_resource {
  explicit Another(cistern_pool* handle) : pool(handle) {}
  void* do_allocate(std::size_t, std::size_t) override { return nullptr; }
  void do_deallocate(void*, std::size_t, std::size_t) override {}
  bool do_is_equal(const std::pmr::memory_resource&) const noexcept override { return false; }
  cistern_pool* pool;
};

class Resources : public testing::TestWithParam<cistern_kind> {
 protected:
  void SetUp() override {
    if (GetParam() != CISTERN_HOST && !make_cuda_current()) GTEST_SKIP() << "no simulated driver";
  }
  static pool make(std::size_t bytes_max = 0) {
    return pool::make({.name = "containers", .kind = GetParam(), .bytes_max = bytes_max}).value();
  }
};

TEST_P(Resources, HoldContainersOfPmr) {
  pool own = make();
  cistern::memory_resource memory(own);
  {
    std::pmr::map<int, std::pmr::string> words(&memory);
    for (int i = 0; i < 1000; ++i) words[i] = std::string(static_cast<std::size_t>(i), 'x');
    EXPECT_EQ(words[999].get_allocator().resource(), &memory);
    EXPECT_EQ(words[999].size(), 999u);
    std::pmr::vector<Wide> wide(10, &memory);
    EXPECT_TRUE(is_aligned(wide.data(), 512));
    EXPECT_GE(own.statistics().live_blocks, 2000u - 16) << "short strings have no block";
    EXPECT_GE(own.statistics().live_bytes, 10 * sizeof(Wide));
    EXPECT_EQ(own.destroy().status(), CISTERN_BUSY);
    void* const empty = memory.allocate(0);
    EXPECT_NE(empty, nullptr);
    memory.deallocate(empty, 0);
  }
  EXPECT_EQ(own.statistics().live_blocks, 0u);
  EXPECT_EQ(own.statistics().frees, own.statistics().allocations);
  EXPECT_TRUE(own.destroy());
}

TEST_P(Resources, AreEqualWhereTheirPoolIs) {
  pool one = make(), other = make();
  cistern::memory_resource a(one), b(one), c(other), process(GetParam());
  EXPECT_TRUE(a.is_equal(b));
  EXPECT_FALSE(a.is_equal(c));
  EXPECT_FALSE(a.is_equal(process));
  EXPECT_TRUE(process.is_equal(cistern::memory_resource(GetParam())));
  EXPECT_FALSE(a.is_equal(*std::pmr::new_delete_resource()));
  EXPECT_FALSE(std::pmr::new_delete_resource()->is_equal(a));
  EXPECT_FALSE(a.is_equal(std::pmr::monotonic_buffer_resource(&b)));
  EXPECT_FALSE(a.is_equal(Another(one.get())));
  void* const block = a.allocate(100);
  b.deallocate(block, 100);
}

// The process's own pool of pinned memory aligns to 64 bytes and no more by itself.
TEST_P(Resources, AlignBlocksOfTheProcesssPoolToo) {
  cistern::memory_resource memory(GetParam());
  EXPECT_EQ(memory.pool(), cistern::default_pool(GetParam()));
  for (std::size_t alignment = 1; alignment <= 1 << 20; alignment *= 2)
    for (const std::size_t bytes : {1u, 8u, 1000u, 70000u}) {
      void* const block = memory.allocate(bytes, alignment);
      EXPECT_TRUE(is_aligned(block, alignment)) << alignment;
      memset(block, 0x5a, bytes);
      Captured said;
      memory.deallocate(block, bytes, alignment);
      EXPECT_EQ(said.text(), "");
    }
}

TEST_P(Resources, ThrowWhereTheLimitIs) {
  pool own = make(10000);
  cistern::memory_resource memory(own);
  try {
    std::pmr::vector<char> too_much(20000, &memory);
    FAIL() << "over the limit";
  } catch (const std::bad_alloc& error) {
    EXPECT_STREQ(error.what(), "over the limit of the pool");
  }
  try {
    static_cast<void>(memory.allocate(PTRDIFF_MAX));
    FAIL() << "so much memory?";
  } catch (const cistern::bad_alloc& error) {
    EXPECT_EQ(error.reason().status, CISTERN_NO_MEMORY);
  }
  EXPECT_THROW(static_cast<void>(cistern::memory_resource(GetParam()).allocate(SIZE_MAX - 100, 256)), std::bad_alloc);
  EXPECT_EQ(own.statistics().failed, 2u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Resources, testing::Values(CISTERN_HOST, CISTERN_PINNED), name_of_kind);

template <class Kind>
class Allocators : public testing::Test {
 protected:
  void SetUp() override {
    if (Kind::value != CISTERN_HOST && !make_cuda_current()) GTEST_SKIP() << "no simulated driver";
  }
  template <class T>
  using Of = cistern::allocator<T, Kind::value>;
  static pool make() { return pool::make({.name = "containers", .kind = Kind::value}).value(); }
};
using ContainerKinds = testing::Types<std::integral_constant<cistern_kind, CISTERN_HOST>,
                                      std::integral_constant<cistern_kind, CISTERN_PINNED>>;
TYPED_TEST_SUITE(Allocators, ContainerKinds);

TYPED_TEST(Allocators, ServeEveryContainer) {
  pool own = TestFixture::make();
  {
    const typename TestFixture::template Of<int> from(own);
    std::vector<int, typename TestFixture::template Of<int>> numbers(1000, 7, from);
    std::list<int, typename TestFixture::template Of<int>> list(numbers.begin(), numbers.end(), from);
    using Pair = std::pair<const int, int>;
    std::map<int, int, std::less<>, typename TestFixture::template Of<Pair>> map(from);
    std::unordered_map<int, int, std::hash<int>, std::equal_to<>, typename TestFixture::template Of<Pair>> hashed(
        10, std::hash<int>(), std::equal_to<>(), from);
    for (int i = 0; i < 1000; ++i) map[i] = hashed[i] = i;
    std::basic_string<char, std::char_traits<char>, typename TestFixture::template Of<char>> text(500, 'x', from);
    EXPECT_EQ(std::accumulate(numbers.begin(), numbers.end(), 0), 7000);
    EXPECT_EQ(map[999] + hashed[999], 1998);
    EXPECT_GE(own.statistics().live_blocks, 3000u);
    std::vector<Wide, typename TestFixture::template Of<Wide>> wide(3, typename TestFixture::template Of<Wide>(own));
    EXPECT_TRUE(is_aligned(wide.data(), 512));
    const auto copy = numbers;
    EXPECT_EQ(copy.get_allocator(), from) << "copies are made in the same pool";
  }
  EXPECT_EQ(own.statistics().live_blocks, 0u);
  std::vector<Wide, typename TestFixture::template Of<Wide>> of_process(3);
  EXPECT_TRUE(is_aligned(of_process.data(), 512));
}

TYPED_TEST(Allocators, GoWithTheContents) {
  pool one = TestFixture::make(), other = TestFixture::make();
  using Allocator = typename TestFixture::template Of<int>;
  std::vector<int, Allocator> a(100, 1, Allocator(one)), b(200, 2, Allocator(other));
  const int* const place = a.data();
  a.swap(b);
  EXPECT_EQ(b.data(), place);
  EXPECT_EQ(b.get_allocator(), Allocator(one));
  a = std::move(b);
  EXPECT_EQ(a.data(), place) << "moved, and not copied";
  EXPECT_EQ(other.statistics().live_blocks, 0u);
  b = a;
  EXPECT_EQ(b.get_allocator(), Allocator(one));
  EXPECT_NE(Allocator(one), Allocator(other));
  EXPECT_EQ(Allocator(one), (typename TestFixture::template Of<double>(one)));
}

TYPED_TEST(Allocators, RefuseWhatNoSizeHolds) {
  typename TestFixture::template Of<double> from;
  EXPECT_THROW(static_cast<void>(from.allocate(SIZE_MAX / 8 + 2)), std::bad_alloc) << "8 bytes, if it wrapped";
  EXPECT_THROW(static_cast<void>(from.allocate(SIZE_MAX)), std::bad_alloc);
}

TYPED_TEST(Allocators, ServeThreadsTogether) {
  if (kEndsEarly && TypeParam::value == CISTERN_HOST) GTEST_SKIP() << kGone;
  pool own = TestFixture::make();
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; ++id)
    threads.emplace_back([&, id] {
      if (TypeParam::value != CISTERN_HOST) make_cuda_current();
      const typename TestFixture::template Of<int> from(own);
      for (int round = 0; round < 200; ++round) {
        std::list<int, typename TestFixture::template Of<int>> list(20, id, from);
        std::vector<int, typename TestFixture::template Of<int>> numbers(list.begin(), list.end(), from);
        if (std::count(numbers.begin(), numbers.end(), id) != 20) std::abort();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(own.statistics().allocations, 4u * 200 * 21);
  EXPECT_EQ(own.statistics().live_blocks, 0u);
}

TEST(PoolObjects, EndTheirPoolAndMove) {
  pool one = pool::make({.name = "one"}).value();
  cistern_pool* const handle = one.get();
  void* const block = one.allocate(1000, 64).value();
  pool moved = std::move(one);
  EXPECT_EQ(one.get(), nullptr);
  EXPECT_EQ(one.statistics().allocations, 0u);
  EXPECT_TRUE(one.destroy()) << "nothing is left to end";
  EXPECT_EQ(moved.get(), handle);
  EXPECT_EQ(moved.destroy().status(), CISTERN_BUSY);
  EXPECT_EQ(moved.statistics().live_bytes, 1000u);
  EXPECT_TRUE(moved.deallocate(block));
  moved = pool::make({.name = "other"}).value();
  Captured said;
  void* none = nullptr;
  EXPECT_EQ(cistern_pool_allocate(handle, 1, 0, &none), CISTERN_INVALID) << "that pool has gone";
  EXPECT_NE(said.text(), "");
  EXPECT_EQ(pool::make({.name = "none", .kind = static_cast<cistern_kind>(77)}).status(), CISTERN_INVALID);
  EXPECT_EQ(moved.allocate(1, 3).status(), CISTERN_INVALID);
}

TEST(PoolObjects, LeaveBlocksThatLive) {
  void* block = nullptr;
  cistern_pool* handle = nullptr;
  Captured said;
  {
    pool brief = pool::make({.name = "brief"}).value();
    handle = brief.get();
    block = brief.allocate(100).value();
  }
  EXPECT_EQ(said.text(), "cistern: a cistern::pool ends with 1 of its blocks alive: they stay\n");
  memset(block, 1, 100);
  EXPECT_EQ(cistern_pool_deallocate(handle, block, nullptr), CISTERN_OK);
  EXPECT_EQ(cistern_pool_destroy(handle), CISTERN_OK);
}

}  // namespace
