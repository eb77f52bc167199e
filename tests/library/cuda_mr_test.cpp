// Pools as libcu++'s memory resources: what its concepts ask for, in both of their generations, and blocks that its own
// handles allocate and give back. CUDA is the simulated driver; no runtime is linked.
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#include <cistern/cuda_resource.hpp>  // first: it needs none of the others

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <cuda/memory_resource>
#include <cuda/version>

#include "tests/library/kinds.hpp"
#include "tests/simcuda/simcuda.h"

void* queue_of_null_per_thread();  // null_stream_per_thread.cpp

namespace {

namespace mr = cuda::mr;
using cistern::device_resource, cistern::host_resource, cistern::managed_resource, cistern::pinned_resource;

#if CCCL_VERSION >= 3001000
template <class Resource>
constexpr bool is_resource = mr::synchronous_resource<Resource>;
template <class Resource>
constexpr bool is_ordered = mr::resource<Resource>;
template <class... Properties>
using OrderedRef = mr::resource_ref<Properties...>;
template <class... Properties>
using Ref = mr::synchronous_resource_ref<Properties...>;

void* allocate_on(cuda::stream_ref stream, OrderedRef<mr::device_accessible> ref, std::size_t bytes) {
  return ref.allocate(stream, bytes, 256);
}
void deallocate_on(cuda::stream_ref stream, OrderedRef<mr::device_accessible> ref, void* block, std::size_t bytes) {
  ref.deallocate(stream, block, bytes, 256);
}
void* allocate_from(Ref<mr::host_accessible> ref, std::size_t bytes, std::size_t alignment) {
  return ref.allocate_sync(bytes, alignment);
}
void deallocate_from(Ref<mr::host_accessible> ref, void* block, std::size_t bytes, std::size_t alignment) {
  ref.deallocate_sync(block, bytes, alignment);
}
#else
template <class Resource>
constexpr bool is_resource = mr::resource<Resource>;
template <class Resource>
constexpr bool is_ordered = mr::async_resource<Resource>;
template <class... Properties>
using OrderedRef = mr::async_resource_ref<Properties...>;
template <class... Properties>
using Ref = mr::resource_ref<Properties...>;

void* allocate_on(cuda::stream_ref stream, OrderedRef<mr::device_accessible> ref, std::size_t bytes) {
  return ref.allocate_async(bytes, 256, stream);
}
void deallocate_on(cuda::stream_ref stream, OrderedRef<mr::device_accessible> ref, void* block, std::size_t bytes) {
  ref.deallocate_async(block, bytes, 256, stream);
}
void* allocate_from(Ref<mr::host_accessible> ref, std::size_t bytes, std::size_t alignment) {
  return ref.allocate(bytes, alignment);
}
void deallocate_from(Ref<mr::host_accessible> ref, void* block, std::size_t bytes, std::size_t alignment) {
  ref.deallocate(block, bytes, alignment);
}
#endif

struct device_accessible {};  // by its name alone it is not libcu++'s

template <class Resource, bool on_device, bool on_host>
constexpr bool is_as_it_should =
    is_resource<Resource>&& is_ordered<Resource> == on_device&& cuda::has_property<Resource, mr::device_accessible> ==
        on_device&& cuda::has_property<Resource, mr::host_accessible> == on_host &&
    !cuda::has_property<Resource, device_accessible> && !cuda::has_property<Resource, int> &&
    std::is_nothrow_copy_constructible_v<Resource>;
static_assert(is_as_it_should<device_resource, true, false>);
static_assert(is_as_it_should<pinned_resource, true, true>);
static_assert(is_as_it_should<managed_resource, true, true>);
static_assert(is_as_it_should<host_resource, false, true>);

template <class Resource>
void expect_served(cistern_kind kind) {
  cistern::pool pool = cistern::pool::make({.name = "mr", .kind = kind}).value();
  Resource memory(pool);
  EXPECT_EQ(memory, Resource(pool));
  EXPECT_FALSE(memory == Resource());
  const cuda::stream_ref null_stream{cudaStream_t{}}, own_stream{cudaStreamPerThread};
  for (const cuda::stream_ref stream : {null_stream, own_stream}) {
    void* const block = allocate_on(stream, memory, 5000);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 256, 0u);
    EXPECT_EQ(pool.statistics().live_bytes, 5000u);
    deallocate_on(stream, memory, block, 5000);
    EXPECT_EQ(pool.statistics().live_bytes, 0u);
  }
  void* const empty = memory.allocate(0);
  EXPECT_NE(empty, nullptr);
  memory.deallocate(empty, 0);
  EXPECT_TRUE(pool.destroy());
}

TEST(CudaMemoryResources, ServeLibcuxxsHandles) {
  if (!make_cuda_current()) GTEST_SKIP() << "no simulated driver";
  expect_served<device_resource>(CISTERN_DEVICE);
  expect_served<pinned_resource>(CISTERN_PINNED);
  expect_served<managed_resource>(CISTERN_MANAGED);
}

// With the null stream too, which as a stream of the library would mean to wait.
TEST(CudaMemoryResources, GiveBackWithoutWaiting) {
  if (!make_cuda_current()) GTEST_SKIP() << "no simulated driver";
  auto* const create = reinterpret_cast<CUresult (*)(CUstream*, unsigned)>(simcuda_function("cuStreamCreate"));
  auto* const wait = reinterpret_cast<CUresult (*)(CUstream)>(simcuda_function("cuStreamSynchronize"));
  CUstream busy = nullptr;
  ASSERT_EQ(create(&busy, 0), CUDA_SUCCESS);
  const device_resource memory(CISTERN_WHOLE_BLOCKS);
  for (const cuda::stream_ref stream : {cuda::stream_ref(cudaStream_t{}), cuda::stream_ref(busy)}) {
    void* const block = memory.allocate(stream, 3 * kMiB);
    void* const source = memory.allocate(stream, 3 * kMiB);
    simcuda_set_value("stream_delay_us", 300'000);
    const long long waited = simcuda_value("syncs");
    ASSERT_EQ(cistern_copy(block, source, 3 * kMiB, 0, busy), CISTERN_OK);
    memory.deallocate(stream, block, 3 * kMiB);
    EXPECT_EQ(simcuda_value("syncs"), waited);
    void* const next = memory.allocate_async(3 * kMiB, stream);
    EXPECT_NE(next, block) << "the stream still writes there";
    EXPECT_EQ(wait(busy), CUDA_SUCCESS);
    simcuda_set_value("stream_delay_us", 0);
    memory.deallocate_async(next, 3 * kMiB, stream);
    memory.deallocate(source, 3 * kMiB);
  }
}

TEST(CudaMemoryResources, TakeTheProcesssOwnPoolAndAnyAlignmentThatHostsCanWriteTo) {
  if (!make_cuda_current()) GTEST_SKIP() << "no simulated driver";
  pinned_resource pinned;
  host_resource host;
  managed_resource managed;
  for (const Ref<mr::host_accessible>& ref : {Ref<mr::host_accessible>(pinned), Ref<mr::host_accessible>(host)})
    for (const std::size_t alignment : {1u, 16u, 64u, 128u, 256u, 4096u}) {
      void* const block = allocate_from(ref, 1000, alignment);
      memset(block, 0x5a, 1000);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % alignment, 0u);
      deallocate_from(ref, block, 1000, alignment);
    }
  void* const shared = managed.allocate(1000, 256);
  memset(shared, 1, 1000);
  managed.deallocate(shared, 1000, 256);
}

// In code for default streams of threads, null names the thread's own.
TEST(CudaMemoryResources, TakeNullForTheDefaultStream) {
  EXPECT_EQ(cistern::detail::any_stream(cudaStream_t{}).as_queue(), cudaStreamLegacy);
  EXPECT_EQ(queue_of_null_per_thread(), cudaStreamPerThread);
}

#if CCCL_VERSION >= 3001000
TEST(CudaMemoryResources, LiveOnInHandlesThatOwnTheirs) {
  if (!make_cuda_current()) GTEST_SKIP() << "no simulated driver";
  cistern::pool pool = cistern::pool::make({.name = "mr", .kind = CISTERN_DEVICE}).value();
  mr::any_resource<mr::device_accessible> owned{device_resource(pool)};
  mr::any_resource<mr::device_accessible> copy = owned;
  EXPECT_TRUE(owned == copy);
  void* const block = owned.allocate_sync(100, 256);
  EXPECT_EQ(pool.statistics().live_bytes, 100u);
  copy.deallocate_sync(block, 100, 256);
  EXPECT_EQ(pool.statistics().live_bytes, 0u);
}
#endif

TEST(CudaMemoryResources, ThrowWhatSaysWhy) {
  if (!make_cuda_current()) GTEST_SKIP() << "no simulated driver";
  device_resource memory;
  try {
    memory.allocate_sync(std::size_t{1} << 45);
    FAIL() << "so much memory?";
  } catch (const cistern::bad_alloc& error) {
    EXPECT_EQ(error.reason().status, CISTERN_NO_MEMORY);
    EXPECT_EQ(error.reason().native, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_STREQ(error.what(), "out of memory");
  }
  const device_resource whole(CISTERN_WHOLE_BLOCKS);
  EXPECT_THROW(whole.allocate(100, 512), std::bad_alloc) << "not in the process's own pool";
}

}  // namespace
