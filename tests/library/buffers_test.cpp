// Buffers and views of the C++ interface, over every kind, and what failures say.
#include <gtest/gtest.h>

#include <cistern/buffer.hpp>
#include <deque>
#include <numeric>
#include <vector>

#include "tests/library/kinds.hpp"

namespace {

using cistern::buffer;
using cistern::view;

class BufferTest : public PoolTest {
 protected:
  void SetUp() override {
    PoolTest::SetUp();
    if (IsSkipped() || GetParam() != CISTERN_OPENCL) return;
    cl_device_id device = nullptr;
    clGetContextInfo(opencl_context(), CL_CONTEXT_DEVICES, sizeof device, &device, nullptr);
    queue_ = clCreateCommandQueueWithProperties(opencl_context(), device, nullptr, nullptr);
  }
  void TearDown() override {
    if (queue_) clReleaseCommandQueue(queue_);
  }
  cistern::place place() const {
    if (GetParam() != CISTERN_OPENCL) return {GetParam()};
    return cistern::on_opencl(reinterpret_cast<_cl_context*>(opencl_context()),
                              reinterpret_cast<_cl_command_queue*>(queue_));
  }
  std::uint64_t live() const {
    auto of = cistern::sized<cistern_figures>();
    EXPECT_EQ(cistern_get_figures(GetParam(), -1, &of), CISTERN_OK);
    return of.live_blocks;
  }
  cl_command_queue queue_ = nullptr;
};

std::vector<int> counted(std::size_t count, int first = 0) {
  std::vector<int> all(count);
  std::iota(all.begin(), all.end(), first);
  return all;
}

std::vector<int> contents(const view<const int>& of) {
  std::vector<int> all(of.size());
  EXPECT_TRUE(of.copy_to(all));
  return all;
}

TEST_P(BufferTest, CopiesThereAndBack) {
  auto made = buffer<int>::make(1000, place());
  ASSERT_TRUE(made) << made.status() << ' ' << made.why().native;
  EXPECT_EQ(made->size(), 1000u);
  EXPECT_EQ(made->size_bytes(), 4000u);
  EXPECT_EQ(made->kind(), GetParam());
  EXPECT_EQ(made->data() != nullptr, GetParam() != CISTERN_OPENCL);
  EXPECT_EQ(made->memory_object() != nullptr, GetParam() == CISTERN_OPENCL);
  ASSERT_TRUE(made->copy_from(counted(1000)));
  EXPECT_EQ(contents(*made), counted(1000));
  auto other = buffer<int>::make(1000, place());
  ASSERT_TRUE(other);
  ASSERT_TRUE(other->copy_from(*made));
  EXPECT_EQ(contents(*other), counted(1000));
}

TEST_P(BufferTest, ViewsShareAndKeepTheMemory) {
  const std::uint64_t before = live();
  view<int> left;
  {
    auto made = buffer<int>::make(64, place()).value();
    ASSERT_TRUE(made.copy_from(counted(64)));
    const view<int> middle = made.slice(16, 32).value();
    left = middle.slice(8, 4).value();
    EXPECT_EQ(contents(middle), counted(32, 16));
    ASSERT_TRUE(left.fill(-1));
    EXPECT_EQ(contents(made)[24], -1);
    EXPECT_EQ(contents(made)[23], 23);
    EXPECT_EQ(contents(made)[27], -1);
    EXPECT_EQ(contents(made)[28], 28);
    if (GetParam() != CISTERN_HOST || kHostPoolServes) EXPECT_GT(live(), before);
  }
  EXPECT_EQ(contents(left), std::vector<int>(4, -1)) << "the buffer has gone, its memory not";
  left = {};
  if (GetParam() != CISTERN_HOST) EXPECT_EQ(live(), before);
  EXPECT_TRUE(left.empty());
  EXPECT_EQ(left.data(), nullptr);
}

TEST_P(BufferTest, BoundsAndSizesAreNamedByCall) {
  auto made = buffer<int>::make(10, place()).value();
  const auto beyond = made.slice(8, 3);
  EXPECT_EQ(beyond.status(), CISTERN_BOUNDS);
  EXPECT_STREQ(beyond.why().call, "view::slice");
  EXPECT_EQ(made.slice(11, 0).status(), CISTERN_BOUNDS);
  EXPECT_EQ(made.slice(1, SIZE_MAX).status(), CISTERN_BOUNDS);
  EXPECT_TRUE(made.slice(10, 0));
  const auto longer = made.copy_from(counted(11));
  EXPECT_EQ(longer.status(), CISTERN_MISMATCH);
  EXPECT_STREQ(longer.why().call, "view::copy_from");
  std::vector<int> shorter(9);
  EXPECT_STREQ(made.copy_to(shorter).why().call, "view::copy_to");
  struct Three {
    char bytes[3];
  };
  EXPECT_EQ(made.as<Three>().status(), CISTERN_MISMATCH) << "40 bytes are no multiple of 3";
  EXPECT_EQ(made.slice(1, 2).value().as<double>().status(), CISTERN_MISMATCH) << "it would begin inside of an element";
  EXPECT_EQ(made.slice(2, 4).value().as<double>().value().size(), 2u);
  const bool is_host = GetParam() != CISTERN_DEVICE && GetParam() != CISTERN_OPENCL;
  EXPECT_EQ(made.span().status(), is_host ? CISTERN_OK : CISTERN_MISMATCH);
  EXPECT_EQ(buffer<int>::make(0, place()).status(), CISTERN_INVALID);
  EXPECT_EQ(buffer<int>::make(SIZE_MAX / 4, place()).status(), CISTERN_NO_MEMORY);
  EXPECT_EQ(made.prefetch(0).status(), GetParam() == CISTERN_MANAGED ? CISTERN_OK : CISTERN_MISMATCH);
  EXPECT_EQ(made.advise(CISTERN_READ_MOSTLY, 0).status(),
            GetParam() == CISTERN_MANAGED ? CISTERN_OK : CISTERN_MISMATCH);
}

TEST_P(BufferTest, FillsWithElementsOfAnySize) {
  const auto check = [&]<class T>(T value) {
    auto made = buffer<T>::make(1001, place()).value();
    ASSERT_TRUE(made.fill(T{}));
    ASSERT_TRUE(made.slice(1, 999).value().fill(value));
    std::vector<T> seen(1001);
    ASSERT_TRUE(made.copy_to(seen));
    for (std::size_t i = 0; i < seen.size(); ++i)
      ASSERT_EQ(memcmp(&seen[i], i == 0 || i == 1000 ? T{}.bytes : value.bytes, sizeof value), 0) << i;
  };
  struct One {
    unsigned char bytes[1];
  };
  struct Two {
    alignas(2) unsigned char bytes[2];
  };
  struct Four {
    alignas(4) unsigned char bytes[4];
  };
  struct Twelve {
    unsigned char bytes[12];
  };
  struct Big {
    unsigned char bytes[256];
  };
  check(One{{7}});
  check(Two{{1, 2}});
  check(Four{{1, 2, 3, 4}});
  check(Twelve{{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}});
  Big big{};
  std::iota(std::begin(big.bytes), std::end(big.bytes), static_cast<unsigned char>(3));
  check(big);
}

TEST_P(BufferTest, MovedFromHasNothing) {
  auto made = buffer<int>::make(5, place()).value();
  ASSERT_TRUE(made.copy_from(counted(5)));
  buffer<int> moved = std::move(made);
  EXPECT_EQ(made.size(), 0u);
  EXPECT_EQ(made.data(), nullptr);
  EXPECT_EQ(made.memory_object(), nullptr);
  EXPECT_TRUE(made.fill(1)) << "of no elements there is nothing to fill";
  EXPECT_EQ(contents(moved), counted(5));
  made = std::move(moved);
  EXPECT_EQ(contents(made), counted(5));
}

TEST_P(BufferTest, ThreadsUseViewsOfOneBuffer) {
  constexpr std::size_t kThreads = 4, kEach = 1000;
  auto made = buffer<int>::make(kThreads * kEach, place()).value();
  std::deque<Beside> threads;
  for (std::size_t i = 0; i < kThreads; ++i)
    threads.emplace_back([part = made.slice(i * kEach, kEach).value(), i] {
      if (GetParam() != CISTERN_HOST && GetParam() != CISTERN_OPENCL) make_cuda_current();
      for (int round = 0; round < 20; ++round) {
        ASSERT_TRUE(part.copy_from(counted(kEach, static_cast<int>(i))));
        ASSERT_EQ(contents(part), counted(kEach, static_cast<int>(i)));
        const view<const int> again = part;
      }
    });
  for (Beside& thread : threads) thread.join();
}

TEST_P(BufferTest, IsFreedByAThreadWithoutAContext) {
  const std::uint64_t before = live();
  auto made = buffer<int>::make(1000, place()).value();
  Beside([gone = std::move(made)]() mutable { gone = {}; }).join();
  if (GetParam() != CISTERN_HOST) EXPECT_EQ(live(), before);
}

INSTANTIATE_TEST_SUITE_P(Kinds, BufferTest, every_kind(), name_of_kind);

TEST(Buffers, WrapWithoutOwning) {
  std::vector<int> own = counted(10);
  {
    auto wrapped = buffer<int>::wrap(own.data(), own.size()).value();
    EXPECT_EQ(wrapped.data(), own.data());
    ASSERT_TRUE(wrapped.slice(0, 3).value().fill(9));
  }
  EXPECT_EQ(own[2], 9);
  EXPECT_EQ(own[3], 3);
  EXPECT_EQ(buffer<int>::wrap(nullptr, 1).status(), CISTERN_INVALID);
  auto constant = buffer<const int>::wrap(own.data(), own.size()).value();
  EXPECT_EQ(contents(constant)[9], 9);
}

TEST(Buffers, AlignElementsThatWantIt) {
  struct alignas(4096) Page {
    char bytes[4096];
  };
  auto made = buffer<Page>::make(3).value();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(made.data()) % 4096, 0u);
}

TEST(Buffers, ComeFromAPool) {
  cistern_pool_settings settings{};
  settings.struct_bytes = sizeof settings;
  settings.kind = CISTERN_HOST;
  settings.bytes_max = 1000;
  cistern_pool* pool = nullptr;
  demand(cistern_pool_create(&settings, &pool));
  {
    auto made = buffer<char>::make(600, cistern::in(pool, cistern::on_host())).value();
    EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_BUSY);
    EXPECT_EQ(buffer<char>::make(600, cistern::in(pool, cistern::on_host())).status(), CISTERN_LIMIT);
  }
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

TEST(Buffers, SayWhyTheyFail) {
  try {
    std::ignore = buffer<int>::make(10).value().slice(4, 7).value();
    FAIL() << "nothing was thrown";
  } catch (const cistern::error& error) {
    EXPECT_STREQ(error.what(), "cistern::view::slice: out of bounds");
    EXPECT_EQ(error.reason().status, CISTERN_BOUNDS);
  }
}

TEST(Buffers, OfTwoDevicesCopyBetweenThem) {
  int devices = 0;
  if (!make_cuda_current() || cistern_device_count(&devices) || devices < 2) GTEST_SKIP() << "no simulated driver";
  auto one = buffer<int>::make(5000, cistern::on_device(0)).value();
  auto other = buffer<int>::make(5000, cistern::on_device(1)).value();
  ASSERT_TRUE(one.copy_from(counted(5000)));
  ASSERT_TRUE(other.copy_from(one));
  EXPECT_EQ(contents(other), counted(5000));
}

TEST(Buffers, OfDifferentDriversDoNotMix) {
  if (!make_cuda_current()) GTEST_SKIP() << "no simulated driver";
  ASSERT_TRUE(opencl_context());
  auto one = buffer<int>::make(50, cistern::on_device()).value();
  auto other =
      buffer<int>::make(50, cistern::on_opencl(reinterpret_cast<_cl_context*>(opencl_context()), nullptr)).value();
  EXPECT_EQ(one.copy_from(other).status(), CISTERN_MISMATCH);
  EXPECT_EQ(other.copy_from(counted(50)).status(), CISTERN_INVALID) << "no queue";
}

}  // namespace
