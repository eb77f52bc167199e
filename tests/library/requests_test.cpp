// What a pool is asked beyond bytes: resizing, reserving, places, streams; the process's own pools; figures and the
// walk over what lives. Over every kind; CUDA is the simulated driver.
#include <cistern/cistern.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/library/captured.hpp"
#include "tests/library/kinds.hpp"
#include "tests/simcuda/simcuda.h"

namespace {

class Requests : public PoolTest {
 protected:
  static cl_command_queue queue() {
    static cl_command_queue made = [] {
      cl_device_id device = nullptr;
      clGetContextInfo(opencl_context(), CL_CONTEXT_DEVICES, sizeof device, &device, nullptr);
      return clCreateCommandQueueWithProperties(opencl_context(), device, nullptr, nullptr);
    }();
    return made;
  }
  static void* queue_of_kind() { return GetParam() == CISTERN_OPENCL ? queue() : nullptr; }

  static void write(void* block, const std::vector<unsigned char>& bytes) {
    if (GetParam() == CISTERN_OPENCL)
      ASSERT_EQ(clEnqueueWriteBuffer(queue(), static_cast<cl_mem>(block), CL_TRUE, 0, bytes.size(), bytes.data(), 0,
                                     nullptr, nullptr),
                CL_SUCCESS);
    else if (GetParam() == CISTERN_DEVICE)
      ASSERT_EQ(cistern_copy(block, bytes.data(), bytes.size(), 0, nullptr), CISTERN_OK);
    else
      memcpy(block, bytes.data(), bytes.size());
  }
  static std::vector<unsigned char> read(void* block, std::size_t count) {
    std::vector<unsigned char> bytes(count);
    if (GetParam() == CISTERN_OPENCL)
      EXPECT_EQ(clEnqueueReadBuffer(queue(), static_cast<cl_mem>(block), CL_TRUE, 0, count, bytes.data(), 0, nullptr,
                                    nullptr),
                CL_SUCCESS);
    else if (GetParam() == CISTERN_DEVICE)
      EXPECT_EQ(cistern_copy(bytes.data(), block, count, 0, nullptr), CISTERN_OK);
    else
      memcpy(bytes.data(), block, count);
    return bytes;
  }
  static std::vector<unsigned char> pattern(std::size_t count) {
    std::vector<unsigned char> bytes(count);
    for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<unsigned char>(i * 7 + 3);
    return bytes;
  }
  static cistern_request request(std::size_t bytes) {
    cistern_request of{};
    of.struct_bytes = sizeof of;
    of.bytes = bytes;
    return of;
  }
};

TEST_P(Requests, ResizedBlocksKeepTheirContents) {
  cistern_pool* const pool = make(settings("resized", 10 * kMiB));
  void* block = nullptr;
  ASSERT_EQ(cistern_pool_reallocate(pool, &block, 1000, queue_of_kind()), CISTERN_OK);
  write(block, pattern(1000));
  ASSERT_EQ(cistern_pool_reallocate(pool, &block, kMiB, queue_of_kind()), CISTERN_OK);
  EXPECT_EQ(read(block, 1000), pattern(1000));
  EXPECT_EQ(figures(pool).live_bytes, kMiB);
  EXPECT_EQ(figures(pool).live_blocks, 1u);
  write(block, pattern(kMiB));
  ASSERT_EQ(cistern_pool_reallocate(pool, &block, 6 * kMiB, queue_of_kind()), CISTERN_OK);
  ASSERT_EQ(cistern_pool_reallocate(pool, &block, 5 * kMiB, queue_of_kind()), CISTERN_OK) << "both are never counted";
  ASSERT_EQ(cistern_pool_reallocate(pool, &block, 500, queue_of_kind()), CISTERN_OK);
  EXPECT_EQ(read(block, 500), pattern(500));
  void* const before = block;
  EXPECT_EQ(cistern_pool_reallocate(pool, &block, 20 * kMiB, queue_of_kind()), CISTERN_LIMIT);
  EXPECT_EQ(block, before);
  EXPECT_EQ(read(block, 500), pattern(500));
  EXPECT_EQ(cistern_pool_reallocate(pool, &block, 0, queue_of_kind()), CISTERN_INVALID);
  if (GetParam() == CISTERN_OPENCL) EXPECT_EQ(cistern_pool_reallocate(pool, &block, 700, nullptr), CISTERN_INVALID);
  Captured said;
  void* foreign = &block;
  EXPECT_EQ(cistern_pool_reallocate(pool, &foreign, 100, queue_of_kind()), CISTERN_INVALID);
  EXPECT_EQ(said.text(), "cistern: cistern_pool_reallocate(" + hex(&block) + "): no live block of pool \"resized\" (" +
                             kind_name() + "); refused\n");
  EXPECT_EQ(foreign, &block);
  EXPECT_EQ(cistern_pool_deallocate(pool, block, nullptr), CISTERN_OK);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

TEST_P(Requests, TheProcesssOwnPoolIsTheKindItself) {
  cistern_pool *own = nullptr, *again = nullptr;
  ASSERT_EQ(cistern_pool_default(GetParam(), &own), CISTERN_OK);
  EXPECT_EQ(cistern_pool_default(GetParam(), &again), CISTERN_OK);
  EXPECT_EQ(again, own);
  EXPECT_EQ(cistern_pool_destroy(own), CISTERN_INVALID);
  const cistern_pool_statistics before = figures(own);
  cistern_request of = request(3 * kMiB);
  if (GetParam() == CISTERN_OPENCL) of.context = opencl_context(), of.flags = CL_MEM_READ_WRITE;
  void *a = nullptr, *b = nullptr;
  ASSERT_EQ(cistern_pool_allocate_as(own, &of, &a), CISTERN_OK);
  ASSERT_EQ(cistern_pool_allocate_as(own, &of, &b), CISTERN_OK);
  const cistern_pool_statistics after = figures(own);
  EXPECT_GE(after.live_bytes, before.live_bytes + 6 * kMiB);
  if (GetParam() != CISTERN_HOST) EXPECT_EQ(after.allocations, before.allocations + 2);
  EXPECT_EQ(after.bytes_max, 0u);
  switch (GetParam()) {  // any call that ends such a block will do
    case CISTERN_HOST:
      EXPECT_EQ(cistern_deallocate(a), CISTERN_OK);
      break;
    case CISTERN_OPENCL:
      EXPECT_EQ(cistern_opencl_deallocate(static_cast<_cl_mem*>(a), nullptr), CISTERN_OK);
      break;
    case CISTERN_DEVICE:
      EXPECT_EQ(cistern_cuda_deallocate(reinterpret_cast<std::uintptr_t>(a)), CISTERN_OK);
      break;
    default:
      EXPECT_EQ(cistern_pool_deallocate(own, a, nullptr), CISTERN_OK);
  }
  if (GetParam() != CISTERN_OPENCL) {
    write(b, pattern(5000));
    ASSERT_EQ(cistern_pool_reallocate(own, &b, 5 * kMiB, nullptr), CISTERN_OK);
    EXPECT_EQ(read(b, 5000), pattern(5000));
  }
  EXPECT_EQ(cistern_pool_deallocate(own, b, nullptr), CISTERN_OK);
  of.where = CISTERN_ON_NODE;
  EXPECT_EQ(cistern_pool_allocate_as(own, &of, &a), CISTERN_INVALID);
  EXPECT_EQ(a, nullptr);
  // A block of another pool is not for it.
  cistern_pool* const other = make(settings("other"));
  ASSERT_EQ(cistern_pool_allocate(other, 4000, 0, &a), CISTERN_OK);
  Captured said;
  EXPECT_EQ(cistern_pool_deallocate(own, a, nullptr), CISTERN_INVALID);
  EXPECT_EQ(said.text(), "cistern: cistern_pool_deallocate(" + hex(a) + "): a live block of pool \"other\" (" +
                             kind_name() + "); refused\n");
  EXPECT_EQ(cistern_pool_deallocate(other, a, nullptr), CISTERN_OK);
  EXPECT_EQ(cistern_pool_destroy(other), CISTERN_OK);
  EXPECT_EQ(figures(own).live_bytes, before.live_bytes);
  // Nor what is nobody's; of host blocks a sanitizer's own free would say so, and end the process.
  if (GetParam() == CISTERN_HOST && !kHostPoolServes) return;
  auto none = cistern::sized<cistern_pool_statistics>();
  Captured said_then;
  EXPECT_EQ(cistern_pool_deallocate(own, &none, nullptr), CISTERN_INVALID);
  EXPECT_NE(said_then.text().find(hex(&none)), std::string::npos);
}

// Of several threads one resizes the block; the others are told, and nobody reads what is gone.
TEST_P(Requests, OneOfSeveralThreadsResizes) {
  if (kEndsEarly && GetParam() == CISTERN_HOST) GTEST_SKIP() << kGone;
  cistern_pool* const pool = make(settings("raced"));
  Captured said;
  for (int round = 0; round < 100; ++round) {
    void* block = nullptr;
    ASSERT_EQ(cistern_pool_allocate(pool, 100'000, 0, &block), CISTERN_OK);
    std::atomic<int> ready{0}, resized{0};
    std::atomic<void*> now{nullptr};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i)
      threads.emplace_back([&] {
        if (GetParam() != CISTERN_HOST && GetParam() != CISTERN_OPENCL) make_cuda_current();
        void* own = block;
        for (++ready; ready < 3;) continue;
        if (cistern_pool_reallocate(pool, &own, 200'000, queue_of_kind()) == CISTERN_OK) ++resized, now = own;
      });
    for (std::thread& thread : threads) thread.join();
    // Two may come one after the other where the new block lies where the old one was.
    ASSERT_GE(resized, 1);
    EXPECT_EQ(figures(pool).live_blocks, 1u);
    ASSERT_EQ(cistern_pool_deallocate(pool, now, nullptr), CISTERN_OK);
  }
  said.text();
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

TEST_P(Requests, ReservedMemoryIsThere) {
  cistern_pool* const pool = make(settings("reserved", kMiB));
  constexpr std::size_t kBytes = 600'000, kCount = 200;
  cistern_trim(GetParam(), 0, nullptr);
  auto before = cistern::sized<cistern_figures>(), after = before, used = before;
  cistern_get_figures(GetParam(), -1, &before);
  const cistern_status status = cistern_pool_reserve(pool, kBytes, kCount);
  // Of the sanitizers some leave host blocks to the library.
  const bool serves = kHostPoolServes || status == CISTERN_OK;
  const bool keeps = GetParam() == CISTERN_HOST ? serves : GetParam() != CISTERN_MANAGED;
  ASSERT_EQ(status == CISTERN_OK, keeps) << status;
  if (GetParam() == CISTERN_MANAGED) EXPECT_EQ(status, CISTERN_INVALID);
  cistern_get_figures(GetParam(), -1, &after);
  EXPECT_EQ(figures(pool).allocations, 0u);
  if (GetParam() != CISTERN_HOST) EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.peak_bytes, before.peak_bytes) << "none is the program's";
  if (keeps) EXPECT_GE(after.free_bytes, before.free_bytes + kBytes * kCount);
  if (keeps) EXPECT_EQ(cistern_pool_reserve(pool, SIZE_MAX / 8, 9), CISTERN_NO_MEMORY);
  EXPECT_EQ(cistern_pool_reserve(pool, 0, 1), CISTERN_INVALID);
  cistern_pool* const unlimited = make(settings("unlimited"));
  // Else it is there for all pools of the kind.
  if (cuts_segments()) ASSERT_EQ(cistern_pool_reserve(unlimited, kBytes, kCount), CISTERN_OK);
  std::vector<void*> blocks(kCount);
  for (void*& block : blocks) ASSERT_EQ(cistern_pool_allocate(unlimited, kBytes, 0, &block), CISTERN_OK);
  const bool recycled = GetParam() != CISTERN_HOST && GetParam() != CISTERN_MANAGED;
  cistern_get_figures(GetParam(), -1, &used);
  if (GetParam() == CISTERN_HOST && serves)
    EXPECT_EQ(used.reserved_bytes, after.reserved_bytes) << "nothing had to be asked of the system";
  EXPECT_EQ(figures(unlimited).pool_hits, recycled ? kCount : 0);
  for (void* block : blocks) EXPECT_EQ(cistern_pool_deallocate(unlimited, block, nullptr), CISTERN_OK);
  cistern_trim(GetParam(), 0, nullptr);
  EXPECT_EQ(cistern_pool_destroy(unlimited), CISTERN_OK);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

// That of a kind which has no such place is refused, of all its calls.
TEST_P(Requests, PlacesAreThoseOfTheKind) {
  const bool is_cuda = GetParam() != CISTERN_HOST && GetParam() != CISTERN_OPENCL;
  cistern_pool* const pool = make(settings("placed"));
  for (const unsigned where : {1u, 2u, 4u, 8u}) {
    cistern_request of = request(100'000);
    of.where = where;
    void* block = pool;
    const bool allowed = where == CISTERN_ON_DEVICE ? is_cuda : GetParam() == CISTERN_HOST && where != 8u;
    const cistern_status status = cistern_pool_allocate_as(pool, &of, &block);
    // A container may not let it choose.
    if (allowed && status == CISTERN_DRIVER && GetParam() == CISTERN_HOST) continue;
    EXPECT_EQ(status, allowed ? CISTERN_OK : CISTERN_INVALID) << where;
    EXPECT_EQ(block != nullptr, allowed);
    EXPECT_EQ(cistern_pool_deallocate(pool, block, nullptr), CISTERN_OK);
    cistern_pool_settings wrong = settings("wrong");
    wrong.where = where;
    cistern_pool* made = nullptr;
    EXPECT_EQ(cistern_pool_create(&wrong, &made), allowed ? CISTERN_OK : CISTERN_INVALID) << where;
    if (allowed) EXPECT_EQ(cistern_pool_destroy(made), CISTERN_OK);
  }
  cistern_request of = request(1000);
  void* block = nullptr;
  of.where = is_cuda ? CISTERN_ON_DEVICE : CISTERN_ON_NODE;
  of.device = of.node = -3;
  EXPECT_EQ(cistern_pool_allocate_as(pool, &of, &block), CISTERN_INVALID);
  of.device = of.node = 1000;  // there is none
  EXPECT_EQ(cistern_pool_allocate_as(pool, &of, &block), CISTERN_INVALID);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

TEST_P(Requests, FiguresAndTheWalkShowWhatLives) {
  cistern_pool* const pool = make(settings("seen"));
  auto before = cistern::sized<cistern_figures>(), after = cistern::sized<cistern_figures>();
  ASSERT_EQ(cistern_get_figures(GetParam(), -1, &before), CISTERN_OK);
  std::vector<void*> blocks(3);
  for (void*& block : blocks) ASSERT_EQ(cistern_pool_allocate(pool, kMiB, 0, &block), CISTERN_OK);
  ASSERT_EQ(cistern_get_figures(GetParam(), -1, &after), CISTERN_OK);
  EXPECT_GE(after.allocations, before.allocations + 3);
  EXPECT_GE(after.live_bytes, before.live_bytes + 3 * kMiB);
  EXPECT_GE(after.peak_bytes, after.live_bytes);
  EXPECT_GT(after.seconds, 0);
  EXPECT_GT(after.allocations_per_second, 0);
  EXPECT_LE(after.hit_rate, 1);
  EXPECT_GE(after.internal_fragmentation, 0);
  EXPECT_LT(after.internal_fragmentation, 1);
  const bool pooled = GetParam() == CISTERN_HOST ? kHostPoolServes : GetParam() != CISTERN_MANAGED;
  if (pooled) EXPECT_GE(after.reserved_bytes, after.live_bytes);
  if (GetParam() != CISTERN_HOST) EXPECT_GE(after.allocated_bytes, before.allocated_bytes + 3 * kMiB);

  struct Seen {
    std::vector<void*> wanted;
    unsigned found = 0, with_frames = 0;
  } seen{blocks};
  const auto note = [](const cistern_block* block, void* user) {
    Seen& seen = *static_cast<Seen*>(user);
    EXPECT_EQ(block->struct_bytes, sizeof *block);
    EXPECT_EQ(block->kind, GetParam());
    if (std::find(seen.wanted.begin(), seen.wanted.end(), block->address) == seen.wanted.end()) return 0;
    ++seen.found;
    EXPECT_EQ(block->bytes, kMiB);
    EXPECT_EQ(block->device, GetParam() == CISTERN_DEVICE ? 0 : -1);
    seen.with_frames += block->frame_count && block->frames[0];
    return 0;
  };
  EXPECT_EQ(cistern_visit(GetParam(), note, &seen), CISTERN_OK);
  // Of host memory a sample is drawn every 512 KiB on average.
  if (GetParam() == CISTERN_HOST) {
    EXPECT_LE(seen.found, 3u);
  } else {
    EXPECT_EQ(seen.found, 3u);
    EXPECT_EQ(seen.with_frames, 3u);
  }
  int calls = 0;
  const auto stop = [](const cistern_block*, void* user) { return ++*static_cast<int*>(user); };
  EXPECT_EQ(cistern_visit(GetParam(), stop, &calls), CISTERN_OK);
  if (GetParam() != CISTERN_HOST) EXPECT_EQ(calls, 1);
  for (void* block : blocks) EXPECT_EQ(cistern_pool_deallocate(pool, block, nullptr), CISTERN_OK);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Requests, every_kind(), name_of_kind);

// --- Of single kinds
TEST(RequestsOfHostMemory, WholePagesLieWhereTheyAreWanted) {
  cistern_pool_settings of{};
  of.struct_bytes = sizeof of;
  of.kind = CISTERN_HOST;
  of.where = CISTERN_HUGE_PAGES;
  cistern_pool* pool = nullptr;
  ASSERT_EQ(cistern_pool_create(&of, &pool), CISTERN_OK);
  void* block = nullptr;
  const cistern_status status = cistern_pool_allocate(pool, 5'000'000, 0, &block);
  if (status == CISTERN_DRIVER) GTEST_SKIP() << "no transparent huge pages here: " << cistern_native_error();
  ASSERT_EQ(status, CISTERN_OK);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % (2 * kMiB), 0u);
  memset(block, 1, 5'000'000);
  EXPECT_EQ(cistern_pool_deallocate(pool, block, nullptr), CISTERN_OK);
  cistern_request near{};
  near.struct_bytes = sizeof near;
  near.bytes = 100;
  near.where = CISTERN_ON_NODE;
  const cistern_status placed = cistern_pool_allocate_as(pool, &near, &block);
  if (placed == CISTERN_OK) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE)), 0u);
    memset(block, 1, 100);
    EXPECT_EQ(cistern_pool_deallocate(pool, block, nullptr), CISTERN_OK);
  } else {
    EXPECT_EQ(placed, CISTERN_DRIVER);  // a kernel without NUMA, or a filter
    EXPECT_NE(cistern_native_error(), 0);
  }
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
}

TEST(RequestsOfHostMemory, ReallocateAnswersAsReallocDoes) {
  auto* block = static_cast<char*>(cistern_reallocate(nullptr, 100));
  ASSERT_NE(block, nullptr);
  memcpy(block, "kept", 5);
  block = static_cast<char*>(cistern_reallocate(block, 100'000));
  ASSERT_NE(block, nullptr);
  EXPECT_STREQ(block, "kept");
  errno = 0;
  EXPECT_EQ(cistern_reallocate(block, PTRDIFF_MAX), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_STREQ(block, "kept");
  block = static_cast<char*>(cistern_reallocate(block, 0));
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(cistern_deallocate(block), CISTERN_OK);
}

TEST(RequestsOfDeviceMemory, BlocksAreOfTheDeviceThatIsAskedFor) {
  if (!make_cuda_current()) GTEST_SKIP() << "no simulated driver";
  int devices = 0;
  ASSERT_EQ(cistern_device_count(&devices), CISTERN_OK);
  ASSERT_EQ(devices, 2);
  cistern_pool_settings of{};
  of.struct_bytes = sizeof of;
  of.kind = CISTERN_DEVICE;
  of.where = CISTERN_ON_DEVICE;
  of.device = 1;
  cistern_pool* pool = nullptr;
  ASSERT_EQ(cistern_pool_create(&of, &pool), CISTERN_OK);
  auto before = cistern::sized<cistern_memory_info>(), info = cistern::sized<cistern_memory_info>();
  ASSERT_EQ(cistern_device_memory(1, &before), CISTERN_OK);
  void* block = nullptr;
  ASSERT_EQ(cistern_pool_allocate(pool, 8 * kMiB, 0, &block), CISTERN_OK);
  ASSERT_EQ(cistern_device_memory(1, &info), CISTERN_OK);
  EXPECT_EQ(info.live_bytes, before.live_bytes + 8 * kMiB);
  EXPECT_EQ(info.free_bytes, before.free_bytes - 8 * kMiB);
  auto figures = cistern::sized<cistern_figures>();
  ASSERT_EQ(cistern_get_figures(CISTERN_DEVICE, 1, &figures), CISTERN_OK);
  EXPECT_GE(figures.live_bytes, 8 * kMiB);
  // Resized it stays there, and what it goes back to is that device's.
  ASSERT_EQ(cistern_pool_reallocate(pool, &block, 16 * kMiB, nullptr), CISTERN_OK);
  ASSERT_EQ(cistern_device_memory(1, &info), CISTERN_OK);
  EXPECT_EQ(info.live_bytes, before.live_bytes + 16 * kMiB);
  EXPECT_EQ(info.cached_bytes, before.cached_bytes + 8 * kMiB);
  EXPECT_EQ(info.free_bytes, before.free_bytes - 16 * kMiB) << "what is kept is free";
  EXPECT_EQ(cistern_pool_deallocate(pool, block, nullptr), CISTERN_OK);
  EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
  std::size_t returned = 0;
  EXPECT_EQ(cistern_trim(CISTERN_DEVICE, 0, &returned), CISTERN_OK);
  EXPECT_GT(returned, 0u);
}

// Given back with a stream nothing waits, and nobody gets the block while the stream works.
TEST(RequestsOfDeviceMemory, AStreamsWorkKeepsABlock) {
  if (!make_cuda_current()) GTEST_SKIP() << "no simulated driver";
  for (const cistern_kind kind : {CISTERN_DEVICE, CISTERN_PINNED}) {
    cistern_pool_settings of{};
    of.struct_bytes = sizeof of;
    of.kind = kind;
    cistern_pool* pool = nullptr;
    ASSERT_EQ(cistern_pool_create(&of, &pool), CISTERN_OK);
    auto* const create = reinterpret_cast<CUresult (*)(CUstream*, unsigned)>(simcuda_function("cuStreamCreate"));
    auto* const wait = reinterpret_cast<CUresult (*)(CUstream)>(simcuda_function("cuStreamSynchronize"));
    auto* const destroy = reinterpret_cast<CUresult (*)(CUstream)>(simcuda_function("cuStreamDestroy_v2"));
    CUstream stream = nullptr;
    ASSERT_EQ(create(&stream, 0), CUDA_SUCCESS);
    void *block = nullptr, *source = nullptr, *next = nullptr;
    ASSERT_EQ(cistern_pool_allocate(pool, 3 * kMiB, 0, &block), CISTERN_OK);
    ASSERT_EQ(cistern_pool_allocate(pool, 3 * kMiB, 0, &source), CISTERN_OK);
    simcuda_set_value("stream_delay_us", 300'000);
    const long long waited = simcuda_value("syncs");
    ASSERT_EQ(cistern_copy(block, source, 3 * kMiB, 0, stream), CISTERN_OK);
    ASSERT_EQ(cistern_pool_deallocate(pool, block, stream), CISTERN_OK);
    EXPECT_EQ(simcuda_value("syncs"), waited) << "nobody waited";
    ASSERT_EQ(cistern_pool_allocate(pool, 3 * kMiB, 0, &next), CISTERN_OK);
    EXPECT_NE(next, block) << "the stream still writes there";
    EXPECT_EQ(wait(stream), CUDA_SUCCESS);
    simcuda_set_value("stream_delay_us", 0);
    void* again = nullptr;
    ASSERT_EQ(cistern_pool_allocate(pool, 3 * kMiB, 0, &again), CISTERN_OK);
    EXPECT_EQ(again, block) << "its work has ended";
    for (void* one : {source, next, again}) EXPECT_EQ(cistern_pool_deallocate(pool, one, nullptr), CISTERN_OK);
    EXPECT_EQ(destroy(stream), CUDA_SUCCESS);
    EXPECT_EQ(cistern_pool_destroy(pool), CISTERN_OK);
  }
}

}  // namespace
