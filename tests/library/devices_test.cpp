// CUDA's devices through the library: memory, peers, copies, managed memory. The driver is the simulated one.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/library/kinds.hpp"
#include "tests/simcuda/simcuda.h"

namespace {

class Devices : public testing::Test {
 protected:
  void SetUp() override {
    if (!simcuda_function("simcuda_set")) GTEST_SKIP() << "no simulated driver";
    int devices = 0;
    ASSERT_EQ(cistern_device_count(&devices), CISTERN_OK);
    ASSERT_EQ(devices, 2);
  }
  static cistern_pool* pool_on(int device) {
    cistern_pool_settings of{};
    of.struct_bytes = sizeof of;
    of.kind = CISTERN_DEVICE;
    of.where = CISTERN_ON_DEVICE;
    of.device = device;
    cistern_pool* pool = nullptr;
    EXPECT_EQ(cistern_pool_create(&of, &pool), CISTERN_OK);
    return pool;
  }
};

// Nobody in this thread has made a context: the library does.
TEST_F(Devices, NeedNoContextOfTheCallers) {
  auto info = cistern::sized<cistern_memory_info>();
  ASSERT_EQ(cistern_device_memory(0, &info), CISTERN_OK);
  EXPECT_EQ(info.total_bytes, std::uint64_t{8} << 30);
  EXPECT_LE(info.free_bytes, info.total_bytes);
  auto* const current = reinterpret_cast<CUresult (*)(CUcontext*)>(simcuda_function("cuCtxGetCurrent"));
  CUcontext context = nullptr;
  ASSERT_EQ(current(&context), CUDA_SUCCESS);
  EXPECT_EQ(context, nullptr) << "what is current stays";
  EXPECT_EQ(cistern_device_memory(2, &info), CISTERN_INVALID);
  EXPECT_EQ(cistern_native_error(), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cistern_device_memory(-1, &info), CISTERN_INVALID);
  EXPECT_EQ(cistern_device_memory(0, nullptr), CISTERN_INVALID);
}

TEST_F(Devices, MayReachEachOther) {
  int can = -1;
  ASSERT_EQ(cistern_device_can_access(0, 1, &can), CISTERN_OK);
  EXPECT_EQ(can, 1);
  EXPECT_EQ(cistern_device_let_access(0, 1, 1), CISTERN_OK);
  EXPECT_EQ(cistern_device_let_access(0, 1, 1), CISTERN_OK) << "it is so already";
  EXPECT_EQ(cistern_device_let_access(0, 1, 0), CISTERN_OK);
  EXPECT_EQ(cistern_device_let_access(0, 1, 0), CISTERN_OK);
  EXPECT_EQ(cistern_device_let_access(1, 1, 1), CISTERN_OK);
  EXPECT_EQ(cistern_device_let_access(0, 7, 1), CISTERN_INVALID);
  EXPECT_EQ(cistern_native_error(), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cistern_device_can_access(0, 1, nullptr), CISTERN_INVALID);
}

TEST_F(Devices, CopyAmongThemselvesAndTheHost) {
  cistern_pool *const one = pool_on(0), *const other = pool_on(1);
  constexpr std::size_t kBytes = 5'000'000;
  std::vector<unsigned char> sent(kBytes), received(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) sent[i] = static_cast<unsigned char>(i * 31 >> 3);
  void *here = nullptr, *there = nullptr;
  ASSERT_EQ(cistern_pool_allocate(one, kBytes, 0, &here), CISTERN_OK);
  ASSERT_EQ(cistern_pool_allocate(other, kBytes, 0, &there), CISTERN_OK);
  ASSERT_EQ(cistern_copy(here, sent.data(), kBytes, 0, nullptr), CISTERN_OK);
  ASSERT_EQ(cistern_copy(there, here, kBytes, 0, nullptr), CISTERN_OK);
  ASSERT_EQ(cistern_copy(received.data(), there, kBytes, 1, nullptr), CISTERN_OK);
  EXPECT_EQ(sent, received);
  EXPECT_EQ(cistern_copy(here, nullptr, kBytes, 0, nullptr), CISTERN_INVALID);
  EXPECT_EQ(cistern_copy(nullptr, nullptr, 0, 0, nullptr), CISTERN_OK);
  simcuda_set_value("fail_every", 1);
  EXPECT_EQ(cistern_copy(there, here, kBytes, 0, nullptr), CISTERN_DRIVER);
  EXPECT_EQ(cistern_native_error(), CUDA_ERROR_UNKNOWN);
  simcuda_set_value("fail_every", 0);
  EXPECT_EQ(cistern_pool_deallocate(one, here, nullptr), CISTERN_OK);
  EXPECT_EQ(cistern_pool_deallocate(other, there, nullptr), CISTERN_OK);
  EXPECT_EQ(cistern_pool_destroy(one), CISTERN_OK);
  EXPECT_EQ(cistern_pool_destroy(other), CISTERN_OK);
}

TEST_F(Devices, ManagedMemoryTakesAdviceAndIsPrefetched) {
  cistern_pool_settings of{};
  of.struct_bytes = sizeof of;
  of.kind = CISTERN_MANAGED;
  of.where = CISTERN_ON_DEVICE;
  cistern_pool* pool = nullptr;
  ASSERT_EQ(cistern_pool_create(&of, &pool), CISTERN_OK);
  void* block = nullptr;
  ASSERT_EQ(cistern_pool_allocate(pool, kMiB, 0, &block), CISTERN_OK);
  memset(block, 7, kMiB);
  EXPECT_EQ(cistern_advise(block, kMiB, CISTERN_READ_MOSTLY, 0), CISTERN_OK);
  EXPECT_EQ(cistern_advise(block, kMiB, CISTERN_PREFERRED_LOCATION, CISTERN_CPU), CISTERN_OK);
  EXPECT_EQ(cistern_prefetch(block, kMiB, 1, nullptr), CISTERN_OK);
  EXPECT_EQ(cistern_prefetch(block, kMiB, CISTERN_CPU, nullptr), CISTERN_OK);
  EXPECT_EQ(static_cast<char*>(block)[kMiB - 1], 7);
  EXPECT_EQ(cistern_advise(block, 0, CISTERN_READ_MOSTLY, 0), CISTERN_INVALID);
  EXPECT_EQ(cistern_advise(block, kMiB, CISTERN_READ_MOSTLY, -2), CISTERN_INVALID);
  EXPECT_EQ(cistern_prefetch(block, kMiB, 9, nullptr), CISTERN_INVALID);
  EXPECT_EQ(cistern_pool_deallocate(pool, block, nullptr), CISTERN_OK);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

// Whatever the driver refuses, no context is left behind, and the next call is served.
TEST_F(Devices, StandEachCallFailingInTurn) {
  cistern_pool* const pool = pool_on(1);
  auto* const current = reinterpret_cast<CUresult (*)(CUcontext*)>(simcuda_function("cuCtxGetCurrent"));
  unsigned failed = 0;
  std::vector<unsigned char> bytes(10'000);
  for (int every = 1; every <= 25; ++every) {
    simcuda_set_value("fail_every", every);
    auto info = cistern::sized<cistern_memory_info>();
    int can = 0;
    void* block = nullptr;
    failed += cistern_device_memory(1, &info) != CISTERN_OK;
    failed += cistern_device_can_access(0, 1, &can) != CISTERN_OK;
    failed += cistern_device_let_access(0, 1, every % 2) != CISTERN_OK;
    failed += cistern_pool_allocate(pool, 10'000, 0, &block) != CISTERN_OK;
    if (block) failed += cistern_copy(block, bytes.data(), bytes.size(), 1, nullptr) != CISTERN_OK;
    simcuda_set_value("fail_every", 0);
    EXPECT_EQ(cistern_pool_deallocate(pool, block, nullptr), CISTERN_OK);
    CUcontext context = nullptr;
    EXPECT_EQ(current(&context), CUDA_SUCCESS);
    EXPECT_EQ(context, nullptr);
  }
  EXPECT_GE(failed, 5u);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

}  // namespace
