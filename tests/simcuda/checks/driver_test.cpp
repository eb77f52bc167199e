// The simulated driver's own tests: order of streams, memory, errors, contexts, look-ups.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/simcuda/checks/driver_test_support.hpp"

namespace {

constexpr long long kDelay = 20'000;

TEST_F(Driver, WorkRunsLateAndInOrder) {
  const CUdeviceptr memory = allocate(4);
  const CUfunction store = store_kernel();
  const CUstream one = stream();
  simcuda_set("stream_delay_us", kDelay);
  ASSERT_CU(launch_store(store, memory, 1, one));
  ASSERT_CU(launch_store(store, memory, 2, one));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(one));
  ASSERT_CU(cuStreamSynchronize(one));
  EXPECT_CU(CUDA_SUCCESS, cuStreamQuery(one));
  EXPECT_EQ(2U, word_at(memory));
}

TEST_F(Driver, LegacyStreamIsOrderedWithBlockingStreamsOnly) {
  simcuda_set("stream_delay_us", kDelay);
  const CUdeviceptr memory = allocate(4);
  const CUfunction store = store_kernel();
  const CUstream blocking = stream(CU_STREAM_DEFAULT), free_running = stream();
  ASSERT_CU(launch_store(store, memory, 1, blocking));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_LEGACY));
  EXPECT_CU(CUDA_SUCCESS, cuStreamQuery(free_running));
  ASSERT_CU(launch_store(store, memory, 2, nullptr));
  ASSERT_CU(launch_store(store, memory, 3, blocking));
  ASSERT_CU(cuStreamSynchronize(blocking));
  EXPECT_EQ(3U, word_at(memory));
  ASSERT_CU(launch_store(store, memory, 4, free_running));
  EXPECT_CU(CUDA_SUCCESS, cuStreamQuery(CU_STREAM_LEGACY));
  ASSERT_CU(cuStreamSynchronize(free_running));
}

TEST_F(Driver, PerThreadStreamIsAStreamOfItsOwn) {
  simcuda_set("stream_delay_us", 5 * kDelay);  // a thread comes and goes meanwhile
  const CUdeviceptr memory = allocate(4);
  const CUfunction store = store_kernel();
  ASSERT_CU(launch_store(store, memory, 1, CU_STREAM_PER_THREAD));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_PER_THREAD));
  // Another thread's per-thread stream has nothing to do; the legacy stream waits for all of them.
  std::thread([this] {
    ASSERT_CU(cuCtxSetCurrent(context));
    EXPECT_CU(CUDA_SUCCESS, cuStreamQuery(CU_STREAM_PER_THREAD));
  }).join();
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_LEGACY));
  EXPECT_EQ(1U, word_at(memory));
}

TEST_F(Driver, EventsOrderStreams) {
  simcuda_set("stream_delay_us", kDelay);
  const CUdeviceptr memory = allocate(4);
  const CUfunction store = store_kernel();
  const CUstream one = stream(), two = stream();
  const CUevent done = event();
  EXPECT_CU(CUDA_SUCCESS, cuEventQuery(done));  // never recorded
  ASSERT_CU(launch_store(store, memory, 1, one));
  ASSERT_CU(cuEventRecord(done, one));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuEventQuery(done));
  ASSERT_CU(cuStreamWaitEvent(two, done, 0));
  ASSERT_CU(launch_store(store, memory, 2, two));
  ASSERT_CU(cuStreamSynchronize(two));
  EXPECT_CU(CUDA_SUCCESS, cuEventQuery(done));
  EXPECT_EQ(2U, word_at(memory));
}

TEST_F(Driver, EventsMeasureTime) {
  const CUstream one = stream();
  const CUevent start = event(), end = event(), untimed = event(CU_EVENT_DISABLE_TIMING);
  float milliseconds = -1;
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, start, end));
  ASSERT_CU(cuEventRecord(start, one));
  simcuda_set("stream_delay_us", kDelay);
  ASSERT_CU(cuLaunchHostFunc(
      one, [](void*) {}, nullptr));
  ASSERT_CU(cuEventRecord(end, one));
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&milliseconds, start, end));
  ASSERT_CU(cuEventSynchronize(end));
  ASSERT_CU(cuEventElapsedTime(&milliseconds, start, end));
  EXPECT_GE(milliseconds, kDelay * 1e-3 * 0.9);
  ASSERT_CU(cuEventRecord(untimed, one));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, start, untimed));
}

TEST_F(Driver, HostFunctionsMustNotCallTheDriver) {
  static CUresult answer;
  answer = CUDA_SUCCESS;
  ASSERT_CU(cuLaunchHostFunc(
      nullptr,
      [](void*) {
        size_t bytes = 0;
        answer = cuMemGetInfo(&bytes, nullptr);
      },
      nullptr));
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_CU(CUDA_ERROR_NOT_PERMITTED, answer);
}

TEST_F(Driver, PageableSourceIsReadBeforeTheCallReturnsAndPinnedOneLate) {
  simcuda_set("stream_delay_us", kDelay);
  const CUdeviceptr memory = allocate(8);
  const CUstream one = stream();
  unsigned pageable = 1;
  auto* pinned = static_cast<unsigned*>(pin(4));
  *pinned = 1;
  ASSERT_CU(cuMemcpyHtoDAsync(memory, &pageable, 4, one));
  ASSERT_CU(cuMemcpyHtoDAsync(memory + 4, pinned, 4, one));
  pageable = 2;
  *pinned = 2;
  ASSERT_CU(cuStreamSynchronize(one));
  EXPECT_EQ(1U, word_at(memory));
  EXPECT_EQ(2U, word_at(memory + 4));
}

TEST_F(Driver, FreeWaitsForTheDeviceAndPoisons) {
  const CUdeviceptr memory = allocate(1000), other = allocate(4);
  const CUfunction store = store_kernel();
  simcuda_set("stream_delay_us", kDelay);
  const CUstream one = stream();
  ASSERT_CU(launch_store(store, other, 7, one));
  ASSERT_CU(cuMemFree(memory));
  EXPECT_CU(CUDA_SUCCESS, cuStreamQuery(one)) << "cuMemFree did not wait";
  EXPECT_EQ(0xDBDBDBDBU, *reinterpret_cast<unsigned*>(memory));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFree(other + 1));
  EXPECT_EQ(memory, allocate(1000)) << "the address is not given again";
}

TEST_F(Driver, MemoryLimitAndInfo) {
  size_t total = 0;
  ASSERT_CU(cuMemGetInfo(nullptr, &total));
  const size_t before = free_bytes();
  EXPECT_EQ(total, before);
  const CUdeviceptr memory = allocate(1);
  EXPECT_EQ(0U, memory % 512);
  EXPECT_EQ(before - 512, free_bytes());
  CUdeviceptr large = 0;
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&large, total));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&large, 0));
  ASSERT_CU(cuMemAlloc(&large, total - 512));
  EXPECT_EQ(0U, free_bytes());
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&large, 1));
  size_t pitch = 0;
  ASSERT_CU(cuMemFree(memory));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocPitch(&large, &pitch, 513, 1, 4));
}

TEST_F(Driver, AddressRangesAndPointerAttributes) {
  const CUdeviceptr memory = allocate(1000);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  ASSERT_CU(cuMemGetAddressRange(&base, &bytes, memory + 999));
  EXPECT_EQ(memory, base);
  EXPECT_EQ(1000U, bytes);
  EXPECT_CU(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &bytes, memory + 1000));
  CUmemorytype type{};
  ASSERT_CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 5));
  EXPECT_EQ(CU_MEMORYTYPE_DEVICE, type);
  void* pinned = pin(10);
  ASSERT_CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(pinned)));
  EXPECT_EQ(CU_MEMORYTYPE_HOST, type);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(&type)));
  unsigned long long first = 0, second = 0;
  ASSERT_CU(cuPointerGetAttribute(&first, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory));
  ASSERT_CU(cuMemFree(memory));
  ASSERT_EQ(memory, allocate(1000));
  ASSERT_CU(cuPointerGetAttribute(&second, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory));
  EXPECT_NE(first, second);
}

TEST_F(Driver, CopiesOutsideOfMemoryAreRefused) {
  const CUdeviceptr memory = allocate(8);
  unsigned char bytes[16] = {};
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(memory, bytes, 16));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH(bytes, memory - 8, 8));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(memory, 1, 9));
  EXPECT_CU(CUDA_SUCCESS, cuMemsetD8(memory, 1, 8));
  EXPECT_EQ(0x01010101U, word_at(memory + 4));
}

TEST_F(Driver, HostRegistration) {
  std::vector<char> memory(4096);
  ASSERT_CU(cuMemHostRegister(memory.data(), memory.size(), 0));
  EXPECT_CU(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(memory.data() + 100, 10, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(memory.data()));
  CUdeviceptr device = 0;
  ASSERT_CU(cuMemHostGetDevicePointer(&device, memory.data(), 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemHostUnregister(memory.data() + 1));
  ASSERT_CU(cuMemHostUnregister(memory.data()));
  EXPECT_CU(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(memory.data()));
}

TEST_F(Driver, AFaultIsStickyUntilTheContextIsGone) {
  const CUdeviceptr memory = allocate(4);
  const CUfunction store = store_kernel();
  simcuda_set("fault", 1);
  ASSERT_CU(launch_store(store, memory, 1, nullptr));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  CUdeviceptr other = 0;
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc(&other, 4));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemFree(memory));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, launch_store(store, memory, 1, nullptr));
  CUcontext second = nullptr;
  ASSERT_CU(cuCtxCreate_v2(&second, 0, 0));
  EXPECT_CU(CUDA_SUCCESS, cuMemAlloc(&other, 4));
  ASSERT_CU(cuCtxDestroy(second));
}

// Runs in a process of its own, which has no use of the device afterwards.
void lose_a_device() {
  CUcontext other = nullptr, faulty = nullptr, primary = nullptr, elsewhere = nullptr;
  CUdeviceptr memory = 0;
  ASSERT_CU(cuInit(0));
  ASSERT_CU(cuCtxCreate_v2(&elsewhere, 0, 1));
  ASSERT_CU(cuDevicePrimaryCtxRetain(&primary, 0));
  ASSERT_CU(cuCtxCreate_v2(&other, 0, 0));
  ASSERT_CU(cuMemAlloc(&memory, 4));
  ASSERT_CU(cuCtxCreate_v2(&faulty, 0, 0));
  simcuda_set("fault", 1);
  ASSERT_CU(launch_store(store_kernel(), memory, 1, nullptr));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  ASSERT_CU(cuCtxSetCurrent(other));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemFree(memory));
  EXPECT_CU(CUDA_SUCCESS, cuCtxDestroy(faulty));
  EXPECT_CU(CUDA_SUCCESS, cuDevicePrimaryCtxReset(0));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuDevicePrimaryCtxRetain(&primary, 0));
  ASSERT_CU(cuCtxSetCurrent(elsewhere));
  EXPECT_CU(CUDA_SUCCESS, cuMemAlloc(&memory, 4)) << "the other device";
}

TEST(DriverDeathTest, AFaultLosesTheDeviceForTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT((lose_a_device(), std::exit(testing::Test::HasFailure())), testing::ExitedWithCode(0), "");
}

TEST_F(Driver, DestroyingAContextFreesWhatItHas) {
  CUcontext second = nullptr;
  ASSERT_CU(cuCtxCreate_v2(&second, 0, 1));
  const CUdeviceptr memory = allocate(4);
  pin(4);
  const CUstream one = stream();
  ASSERT_CU(cuCtxDestroy(second));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(one));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory));
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy(second));
  EXPECT_EQ(0, simcuda_get("live_allocations"));
  CUcontext current = nullptr;
  ASSERT_CU(cuCtxGetCurrent(&current));
  EXPECT_EQ(context, current);
}

TEST_F(Driver, ResetOfThePrimaryContext) {
  CUcontext first = nullptr, second = nullptr;
  ASSERT_CU(cuDevicePrimaryCtxRetain(&first, 0));
  ASSERT_CU(cuCtxPushCurrent(first));
  const CUdeviceptr memory = allocate(4);
  ASSERT_CU(cuDevicePrimaryCtxReset(0));
  CUdeviceptr other = 0;
  EXPECT_CU(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAlloc(&other, 4));
  ASSERT_CU(cuDevicePrimaryCtxRetain(&second, 0));
  EXPECT_EQ(first, second);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory));
  ASSERT_CU(cuCtxPopCurrent(nullptr));
  ASSERT_CU(cuDevicePrimaryCtxRelease(0));
  int active = -1;
  ASSERT_CU(cuDevicePrimaryCtxGetState(0, nullptr, &active));
  EXPECT_EQ(1, active);
  ASSERT_CU(cuDevicePrimaryCtxRelease(0));
  ASSERT_CU(cuDevicePrimaryCtxGetState(0, nullptr, &active));
  EXPECT_EQ(0, active);
}

TEST_F(Driver, InjectedFailures) {
  CUdeviceptr memory = 0;
  size_t bytes = 0;
  simcuda_set("fail_at", 2);
  EXPECT_CU(CUDA_SUCCESS, cuMemGetInfo(&bytes, nullptr));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&memory, 4));
  EXPECT_CU(CUDA_SUCCESS, cuMemAlloc(&memory, 4));
  simcuda_set("fail_at", 1);
  EXPECT_CU(CUDA_ERROR_UNKNOWN, cuMemFree(memory));
  simcuda_set("fail_every", 1);
  simcuda_set("fail_code", 719);
  EXPECT_CU(CUDA_ERROR_LAUNCH_FAILED, cuMemFree(memory));
  EXPECT_CU(CUDA_ERROR_LAUNCH_FAILED, cuMemGetInfo(&bytes, nullptr));
  void* function = nullptr;
  CUdriverProcAddressQueryResult status{};
  EXPECT_CU(CUDA_SUCCESS, cuGetProcAddress("cuInit", &function, 2000, 0, &status));
  simcuda_set("fail_every", 0);
  EXPECT_CU(CUDA_SUCCESS, cuMemFree(memory));
}

TEST_F(Driver, Counters) {
  const long long calls = simcuda_get("calls"), allocations = simcuda_get("calls:cuMemAlloc_v2");
  const CUdeviceptr memory = allocate(1000);
  EXPECT_EQ(calls + 1, simcuda_get("calls"));
  EXPECT_EQ(allocations + 1, simcuda_get("calls:cuMemAlloc_v2"));
  EXPECT_EQ(1, simcuda_get("live_allocations"));
  EXPECT_EQ(1000, simcuda_get("live_bytes"));
  EXPECT_EQ(0, simcuda_get("calls:cuVDPAUGetDevice"));
  EXPECT_EQ(-1, simcuda_get("calls:cuNothing"));
  EXPECT_EQ(-1, simcuda_get("nothing"));
  EXPECT_EQ(-1, simcuda_set("calls", 1));
  ASSERT_CU(cuMemFree(memory));
}

// Every kind of call from many threads at once; what each thread wrote is what it reads.
TEST_F(Driver, ManyThreads) {
  const CUfunction store = store_kernel();
  constexpr unsigned kThreads = 8, kRounds = 300;
  std::vector<std::thread> threads;
  std::atomic<unsigned> wrong{0};
  for (unsigned thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      cuCtxSetCurrent(context);
      CUstream one = stream(thread % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
      const CUevent mark = event();
      for (unsigned round = 0; round < kRounds; ++round) {
        const unsigned value = thread * kRounds + round;
        CUdeviceptr memory = 0, pooled = 0;
        unsigned seen = 0;
        wrong += cuMemAlloc(&memory, 4 + round * 7) != CUDA_SUCCESS;
        wrong += cuMemAllocAsync(&pooled, 512, one) != CUDA_SUCCESS;
        wrong += launch_store(store, pooled, value, one) != CUDA_SUCCESS;
        wrong += cuMemcpyDtoDAsync(memory, pooled, 4, one) != CUDA_SUCCESS;
        wrong += cuMemFreeAsync(pooled, one) != CUDA_SUCCESS;
        wrong += cuEventRecord(mark, one) != CUDA_SUCCESS;
        wrong += cuStreamWaitEvent(CU_STREAM_PER_THREAD, mark, 0) != CUDA_SUCCESS;
        wrong += cuMemcpyDtoHAsync(&seen, memory, 4, CU_STREAM_PER_THREAD) != CUDA_SUCCESS;
        wrong += seen != value;
        wrong += cuMemFree(memory) != CUDA_SUCCESS;
      }
      wrong += cuStreamDestroy(one) != CUDA_SUCCESS;
      wrong += cuEventDestroy(mark) != CUDA_SUCCESS;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(0U, wrong);
}

TEST_F(Driver, TeardownAnswersFour) {
  simcuda_set("teardown", 1);
  size_t bytes = 0;
  const CUresult answer = cuMemGetInfo(&bytes, nullptr);
  simcuda_set("teardown", 0);
  EXPECT_CU(CUDA_ERROR_DEINITIALIZED, answer);
}

TEST_F(Driver, AForkedChildIsNotInitialized) {
  const pid_t child = fork();
  if (child == 0) {
    size_t bytes = 0;
    _exit(cuMemGetInfo(&bytes, nullptr) == CUDA_ERROR_NOT_INITIALIZED && cuInit(0) == CUDA_ERROR_NOT_INITIALIZED ? 0
                                                                                                                 : 1);
  }
  int status = 0;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_EQ(0, status);
}

TEST_F(Driver, RefusedEntryPointsSayTheirName) {
  testing::internal::CaptureStderr();
  CUtexObject texture = 0;
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED, cuTexObjectCreate(&texture, nullptr, nullptr, nullptr));
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED, cuTexObjectCreate(&texture, nullptr, nullptr, nullptr));
  EXPECT_EQ("simcuda: cuTexObjectCreate is not simulated\n", testing::internal::GetCapturedStderr());
}

// The look-ups of NVIDIA's runtime, each answered; the pointers are not all the exported symbols.
TEST_F(Driver, EveryLookUpOfTheRuntimeIsAnswered) {
  std::ifstream list(SIMCUDA_LOOKUPS);
  ASSERT_TRUE(list) << SIMCUDA_LOOKUPS;
  int asked = 0, same_as_export = 0;
  for (std::string line; std::getline(list, line); ++asked) {
    std::istringstream words(line);
    std::string name, version = "v=0", flags = "f=0";
    if (line.starts_with("v=")) {
      words >> version >> flags;
    } else {
      words >> name >> version >> flags;
    }
    void* function = nullptr;
    CUdriverProcAddressQueryResult status{};
    const CUresult result =
        cuGetProcAddress(name.c_str(), &function, std::stoi(version.substr(2)), std::stoull(flags.substr(2)), &status);
    EXPECT_CU(CUDA_SUCCESS, result) << line;
    EXPECT_EQ(name.empty(), function == nullptr) << line;
    EXPECT_EQ(name.empty() ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND : CU_GET_PROC_ADDRESS_SUCCESS, status) << line;
    same_as_export += function && function == dlsym(RTLD_DEFAULT, name.c_str());
  }
  EXPECT_EQ(440, asked);
  EXPECT_LT(same_as_export, 220);
}

TEST_F(Driver, ProcAddressRules) {
  void *first = nullptr, *second = nullptr;
  CUdriverProcAddressQueryResult status{};
  status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress("cuMemAlloc", &first, 99000, 0, &status));
  EXPECT_EQ(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, status) << "a failure writes no status";
  EXPECT_CU(CUDA_SUCCESS, cuGetProcAddress("cuNothing", &first, 12000, 0, &status));
  EXPECT_EQ(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, status);
  EXPECT_CU(CUDA_SUCCESS, cuGetProcAddress("cuMemAllocAsync", &first, 11010, 0, &status));
  EXPECT_EQ(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, status);
  EXPECT_EQ(nullptr, first);
  ASSERT_CU(cuGetProcAddress("cuMemcpyHtoD", &first, 12000, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status));
  ASSERT_CU(cuGetProcAddress("cuMemcpyHtoD", &second, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
  EXPECT_NE(first, second);
  ASSERT_CU(cuGetProcAddress("cuMemAlloc", &second, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
  CUdeviceptr memory = 0;
  EXPECT_CU(CUDA_SUCCESS, reinterpret_cast<CUresult (*)(CUdeviceptr*, size_t)>(second)(&memory, 4));
  ASSERT_CU(cuMemFree(memory));
}

}  // namespace
