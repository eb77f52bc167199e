// The simulated driver's own tests: pools, managed and virtual memory, arrays, shapes, two processes.
#include "tests/simcuda/checks/driver_test_support.hpp"

namespace {

TEST_F(Driver, PoolsReuseInTheStreamThatFreedAndElsewhereAfterIt) {
  simcuda_set("stream_delay_us", 20'000);
  const CUfunction store = store_kernel();
  const CUstream one = stream(), two = stream();
  CUdeviceptr first = 0, second = 0, third = 0;
  ASSERT_CU(cuMemAllocAsync(&first, 1000, one));
  ASSERT_CU(launch_store(store, first, 1, one));
  ASSERT_CU(cuMemFreeAsync(first, one));
  ASSERT_CU(cuMemAllocAsync(&second, 1000, two));
  EXPECT_NE(first, second) << "given to another stream before its free was reached";
  ASSERT_CU(cuMemAllocAsync(&third, 1000, one));
  EXPECT_EQ(first, third);
  ASSERT_CU(launch_store(store, third, 2, one));
  ASSERT_CU(cuStreamSynchronize(one));
  EXPECT_EQ(2U, word_at(third));
  ASSERT_CU(cuMemFreeAsync(third, one));
  ASSERT_CU(cuMemFree(second));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(third, one));
}

TEST_F(Driver, PoolsGiveBackWhatExceedsTheirThreshold) {
  const size_t before = free_bytes();
  const CUstream one = stream();
  CUmemoryPool pool = nullptr;
  ASSERT_CU(cuDeviceGetDefaultMemPool(&pool, 0));
  for (const cuuint64_t threshold : {cuuint64_t{0}, ~cuuint64_t{0}}) {
    cuuint64_t value = threshold, reserved = 0, used = 1;
    ASSERT_CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
    CUdeviceptr memory = 0;
    ASSERT_CU(cuMemAllocAsync(&memory, 4096, one));
    ASSERT_CU(cuMemFreeAsync(memory, one));
    ASSERT_CU(cuStreamSynchronize(one));
    ASSERT_CU(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    ASSERT_CU(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    EXPECT_EQ(threshold ? 4096U : 0U, reserved);
    EXPECT_EQ(0U, used);
    EXPECT_EQ(before - reserved, free_bytes());
  }
  ASSERT_CU(cuMemPoolTrimTo(pool, 0));
  EXPECT_EQ(before, free_bytes());
  cuuint64_t zero = 0;
  ASSERT_CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &zero));
}

TEST_F(Driver, EachMemoryIsFreedByEachFree) {
  const CUstream one = stream();
  const size_t before = free_bytes();
  CUdeviceptr memory = allocate(4);
  ASSERT_CU(cuMemFreeAsync(memory, one));
  ASSERT_CU(cuStreamSynchronize(one));
  ASSERT_CU(cuMemAllocAsync(&memory, 4, one));
  ASSERT_CU(cuMemFree(memory));
  ASSERT_CU(cuMemAllocManaged(&memory, 4, CU_MEM_ATTACH_GLOBAL));
  ASSERT_CU(cuMemFreeAsync(memory, one));
  ASSERT_CU(cuMemAllocManaged(&memory, 4, CU_MEM_ATTACH_GLOBAL));
  ASSERT_CU(cuMemFree(memory));
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(before, free_bytes());
  void* host = pin(4);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFree(reinterpret_cast<CUdeviceptr>(host)));
  memory = allocate(4);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(reinterpret_cast<void*>(memory)));
  ASSERT_CU(cuMemFree(memory));
  ASSERT_CU(cuMemFreeHost(host));
  EXPECT_EQ(0xDBU, *static_cast<unsigned char*>(host));
}

TEST_F(Driver, FreeingPoolMemoryDoesNotWait) {
  simcuda_set("stream_delay_us", 50'000);
  const CUstream one = stream();
  CUdeviceptr memory = 0;
  ASSERT_CU(cuMemAllocAsync(&memory, 4, one));
  ASSERT_CU(cuLaunchHostFunc(
      one, [](void*) {}, nullptr));
  ASSERT_CU(cuMemFree(memory));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(one));
  ASSERT_CU(cuStreamSynchronize(one));
}

TEST_F(Driver, VirtualMemory) {
  const size_t before = free_bytes();
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  size_t unit = 0;
  ASSERT_CU(cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUdeviceptr memory = 0;
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_CU(cuMemAddressReserve(&memory, 2 * unit, 0, 0, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, unit + 1, &properties, 0));
  ASSERT_CU(cuMemCreate(&handle, unit, &properties, 0));
  EXPECT_EQ(before - unit, free_bytes());
  ASSERT_CU(cuMemMap(memory, unit, 0, handle, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(memory, 1, unit)) << "no access yet";
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  ASSERT_CU(cuMemSetAccess(memory, unit, &access, 1));
  ASSERT_CU(cuMemsetD8(memory, 1, unit));
  EXPECT_EQ(0x01010101U, word_at(memory + unit - 4));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory));
  ASSERT_CU(cuMemRelease(handle));
  EXPECT_EQ(before - unit, free_bytes()) << "it is mapped still";
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(memory, 2 * unit));
  ASSERT_CU(cuMemUnmap(memory, unit));
  EXPECT_EQ(before, free_bytes());
  ASSERT_CU(cuMemAddressFree(memory, 2 * unit));
}

TEST_F(Driver, ArraysAndPitchedCopies) {
  CUDA_ARRAY_DESCRIPTOR descriptor{};
  descriptor.Width = 4;
  descriptor.Height = 3;
  descriptor.Format = CU_AD_FORMAT_UNSIGNED_INT8;
  descriptor.NumChannels = 1;
  CUarray array = nullptr;
  ASSERT_CU(cuArrayCreate(&array, &descriptor));
  CUdeviceptr memory = 0;
  size_t pitch = 0;
  ASSERT_CU(cuMemAllocPitch(&memory, &pitch, 4, 3, 4));
  EXPECT_EQ(512U, pitch);
  const char source[] = "abcdefghijkl";
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = source;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = memory;
  copy.dstPitch = pitch;
  copy.WidthInBytes = 4;
  copy.Height = 3;
  ASSERT_CU(cuMemcpy2D(&copy));
  EXPECT_EQ(0, std::memcmp(reinterpret_cast<char*>(memory + pitch), "efgh", 4));
  copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = memory;
  copy.srcPitch = pitch;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.WidthInBytes = 4;
  copy.Height = 3;
  ASSERT_CU(cuMemcpy2D(&copy));
  char back[12] = {};
  ASSERT_CU(cuMemcpyAtoH(back, array, 0, 12));
  EXPECT_EQ(0, std::memcmp(back, source, 12));
  ASSERT_CU(cuArrayDestroy(array));
  ASSERT_CU(cuMemFree(memory));
}

template <typename Handle>
std::string to_text(const Handle& handle) {
  std::string text;
  for (const char byte : handle.reserved) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(byte));
    text += digits;
  }
  return text;
}

template <typename Handle>
Handle from_text(const char* text) {
  Handle handle{};
  for (size_t index = 0; index < sizeof handle.reserved && text[2 * index]; ++index) {
    unsigned byte = 0;
    std::sscanf(text + 2 * index, "%2x", &byte);
    handle.reserved[index] = static_cast<char>(byte);
  }
  return handle;
}

TEST_F(Driver, MemoryIsSharedBetweenProcesses) {
  allocate(100);  // so that the exported block does not begin a page
  const CUdeviceptr memory = allocate(1000);
  ASSERT_CU(cuMemsetD8(memory, 0x22, 1000));
  ASSERT_CU(cuCtxSynchronize());  // a memset does not wait, and no stream orders the other process
  CUipcMemHandle handle{};
  ASSERT_CU(cuIpcGetMemHandle(&handle, memory));
  CUdeviceptr opened = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  EXPECT_EQ(0, run_as_other_process("Driver.OtherProcessOpensMemory", to_text(handle)));
  EXPECT_EQ(0x33333333U, word_at(memory));
  EXPECT_EQ(0x22222222U, word_at(memory + 4));
}

TEST_F(Driver, OtherProcessOpensMemory) {
  if (!given_handle()) return;  // the part of the test before that another process does
  const auto handle = from_text<CUipcMemHandle>(given_handle());
  CUdeviceptr memory = 0, again = 0;
  ASSERT_CU(cuIpcOpenMemHandle(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  ASSERT_CU(cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  EXPECT_EQ(memory, again);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  ASSERT_CU(cuMemGetAddressRange(&base, &bytes, memory + 10));
  EXPECT_EQ(memory, base);
  EXPECT_EQ(1000U, bytes);
  EXPECT_EQ(0x22222222U, word_at(memory + 996));
  ASSERT_CU(cuMemsetD8(memory, 0x33, 4));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory));
  ASSERT_CU(cuIpcCloseMemHandle(memory));
  EXPECT_EQ(0x33333333U, word_at(memory));
  ASSERT_CU(cuIpcCloseMemHandle(memory));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(memory));
}

TEST_F(Driver, EventsAreSharedBetweenProcesses) {
  simcuda_set("stream_delay_us", 300'000);
  const CUstream one = stream();
  const CUevent shared = event(CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS), local = event();
  CUipcEventHandle handle{};
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuIpcGetEventHandle(&handle, local));
  ASSERT_CU(cuIpcGetEventHandle(&handle, shared));
  ASSERT_CU(cuLaunchHostFunc(
      one, [](void*) {}, nullptr));
  ASSERT_CU(cuEventRecord(shared, one));
  EXPECT_EQ(0, run_as_other_process("Driver.OtherProcessWaitsForEvent", to_text(handle)));
  EXPECT_CU(CUDA_SUCCESS, cuStreamQuery(one)) << "the other process did not wait";
}

TEST_F(Driver, OtherProcessWaitsForEvent) {
  if (!given_handle()) return;  // the part of the test before that another process does
  const auto handle = from_text<CUipcEventHandle>(given_handle());
  CUevent shared = nullptr;
  ASSERT_CU(cuIpcOpenEventHandle(&shared, handle));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuEventQuery(shared));
  const CUstream one = stream();
  ASSERT_CU(cuStreamWaitEvent(one, shared, 0));
  ASSERT_CU(cuStreamSynchronize(one));
  EXPECT_CU(CUDA_SUCCESS, cuEventQuery(shared));
}

}  // namespace
