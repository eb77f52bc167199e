// The substitute runtime over the simulated driver: built once against the shared runtime and once against the archive.
// Counters of the driver tell which of its calls a call of the runtime became.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "../simcuda.h"

// The twins of the per-thread default stream, by their exported names.
extern "C" {
cudaError_t cudaMemcpy_ptds(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaStreamSynchronize_ptsz(cudaStream_t stream);
cudaError_t cudaMallocAsync_ptsz(void** pointer, size_t bytes, cudaStream_t stream);
cudaError_t cudaLaunchKernel_ptsz(const void* stub, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                                  cudaStream_t stream);
cudaError_t cudaGetDriverEntryPointByVersion_ptsz(const char* name, void** function, unsigned int version,
                                                  unsigned long long flags, cudaDriverEntryPointQueryResult* status);
}

namespace {

const char add_stub = 0, unknown_stub = 0;

void add(void** arguments) {
  int* values = *static_cast<int**>(arguments[0]);
  int count = *static_cast<int*>(arguments[1]);
  for (int index = 0; index < count; ++index) values[index] += 1;
}

const bool kernels_defined = [] {
  static const size_t bytes[] = {sizeof(int*), sizeof(int)};
  simcuda_define("add", &add_stub, add, 2, bytes);
  return true;
}();

long long calls(const char* name) { return simcuda_value((std::string("calls:") + name).c_str()); }

// How often the driver's function was called while something was done.
template <class Work>
long long calls_during(const char* name, Work work) {
  long long before = calls(name);
  work();
  return calls(name) - before;
}

std::vector<int> counted(int count) {
  std::vector<int> values(count);
  for (int index = 0; index < count; ++index) values[index] = index;
  return values;
}

// Device memory that holds 0, 1, 2, ...
struct DeviceValues {
  int* values = nullptr;
  int count;
  explicit DeviceValues(int count) : count(count) {
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&values), bytes()), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(values, counted(count).data(), bytes(), cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~DeviceValues() { EXPECT_EQ(cudaFree(values), cudaSuccess); }
  size_t bytes() const { return sizeof(int) * count; }
  std::vector<int> read() const {
    std::vector<int> seen(count, -1);
    EXPECT_EQ(cudaMemcpy(seen.data(), values, bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
    return seen;
  }
  cudaError_t add_one(cudaStream_t stream = nullptr) {
    void* arguments[] = {&values, &count};
    return cudaLaunchKernel(&add_stub, dim3(1), dim3(1), arguments, 0, stream);
  }
};

class Runtime : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(kernels_defined);
    ASSERT_GE(simcuda_value("calls"), 0) << "not the simulated driver: LD_LIBRARY_PATH must lead to its libcuda.so.1";
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    cudaGetLastError();
  }
};

TEST_F(Runtime, AnswersItsVersion) {
  int runtime = 0, driver = 0;
  EXPECT_EQ(cudaRuntimeGetVersion(&runtime), cudaSuccess);
  EXPECT_EQ(cudaDriverGetVersion(&driver), cudaSuccess);
  EXPECT_EQ(runtime, 13000);
  EXPECT_GE(driver, 13000);
}

TEST_F(Runtime, RetainsAPrimaryContextOnce) {
  EXPECT_EQ(calls_during("cuDevicePrimaryCtxRetain",
                         [] {
                           EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
                           std::thread([] { EXPECT_EQ(cudaFree(nullptr), cudaSuccess); }).join();
                         }),
            0);
}

TEST_F(Runtime, NewThreadsStartOnDeviceZero) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  int mine = -1, other = -1;
  EXPECT_EQ(cudaGetDevice(&mine), cudaSuccess);
  std::thread([&] { EXPECT_EQ(cudaGetDevice(&other), cudaSuccess); }).join();
  EXPECT_EQ(mine, 1);
  EXPECT_EQ(other, 0);
}

TEST_F(Runtime, AllocatesThroughTheDriver) {
  void* pointer = &pointer;
  EXPECT_EQ(calls_during("cuMemAlloc_v2", [&] { EXPECT_EQ(cudaMalloc(&pointer, 0), cudaSuccess); }), 0);
  EXPECT_EQ(pointer, nullptr);
  EXPECT_EQ(calls_during("cuMemAlloc_v2", [&] { EXPECT_EQ(cudaMalloc(&pointer, 100), cudaSuccess); }), 1);
  EXPECT_NE(pointer, nullptr);
  EXPECT_EQ(calls_during("cuMemFree_v2", [&] { EXPECT_EQ(cudaFree(pointer), cudaSuccess); }), 1);
  EXPECT_EQ(calls_during("cuMemFree_v2", [&] { EXPECT_EQ(cudaFree(nullptr), cudaSuccess); }), 1);
}

TEST_F(Runtime, PinnedMemoryIsNeverAskedOfMemAllocHost) {
  void *plain = nullptr, *mapped = nullptr;
  EXPECT_EQ(calls_during("cuMemHostAlloc",
                         [&] {
                           EXPECT_EQ(cudaMallocHost(&plain, 100), cudaSuccess);
                           EXPECT_EQ(cudaHostAlloc(&mapped, 100, cudaHostAllocMapped), cudaSuccess);
                         }),
            2);
  void* on_device = nullptr;
  unsigned flags = 0;
  EXPECT_EQ(cudaHostGetDevicePointer(&on_device, mapped, 0), cudaSuccess);
  EXPECT_EQ(cudaHostGetFlags(&flags, mapped), cudaSuccess);
  EXPECT_NE(on_device, nullptr);
  EXPECT_TRUE(flags & cudaHostAllocMapped);
  EXPECT_EQ(cudaFreeHost(plain), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(mapped), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(nullptr), cudaSuccess);
}

TEST_F(Runtime, LastErrorStaysUntilItIsTaken) {
  void* pointer = nullptr;
  EXPECT_EQ(cudaMalloc(&pointer, size_t{1} << 50), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
  std::thread([] { EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess); }).join();
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
}

TEST_F(Runtime, FreesWhatOtherCallsAllocated) {
  void *ordered = nullptr, *managed = nullptr, *from_pool = nullptr, *plain = nullptr;
  cudaMemPool_t pool = nullptr;
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, 0};
  ASSERT_EQ(cudaMemPoolCreate(&pool, &properties), cudaSuccess);
  EXPECT_EQ(cudaMallocAsync(&ordered, 1000, nullptr), cudaSuccess);
  EXPECT_EQ(cudaMallocFromPoolAsync(&from_pool, 1000, pool, nullptr), cudaSuccess);
  EXPECT_EQ(cudaMallocManaged(&managed, 1000, cudaMemAttachGlobal), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&plain, 1000), cudaSuccess);
  EXPECT_EQ(cudaFree(ordered), cudaSuccess);
  EXPECT_EQ(cudaFree(from_pool), cudaSuccess);
  EXPECT_EQ(cudaFree(managed), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(plain, nullptr), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
}

TEST_F(Runtime, CopiesInEveryDirection) {
  DeviceValues first(100), second(100);
  EXPECT_EQ(cudaMemset(second.values, 0, second.bytes()), cudaSuccess);
  EXPECT_EQ(second.read(), std::vector<int>(100, 0));
  EXPECT_EQ(cudaMemcpy(second.values, first.values, first.bytes(), cudaMemcpyDeviceToDevice), cudaSuccess);
  EXPECT_EQ(second.read(), counted(100));
  std::vector<int> host(100, -1);
  EXPECT_EQ(cudaMemcpy(host.data(), second.values, second.bytes(), cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(host, counted(100));
  std::vector<int> copy(100, -1);
  EXPECT_EQ(cudaMemcpy(copy.data(), host.data(), first.bytes(), cudaMemcpyHostToHost), cudaSuccess);
  EXPECT_EQ(copy, counted(100));
  EXPECT_EQ(cudaMemcpy(copy.data(), host.data(), 4, static_cast<cudaMemcpyKind>(9)), cudaErrorInvalidMemcpyDirection);
}

TEST_F(Runtime, CopiesRectanglesBoxesAndArrays) {
  constexpr size_t kWidth = 5 * sizeof(int), kHeight = 3;
  std::vector<int> source = counted(15), seen(15, -1);
  void* pitched = nullptr;
  size_t pitch = 0;
  ASSERT_EQ(cudaMallocPitch(&pitched, &pitch, kWidth, kHeight), cudaSuccess);
  EXPECT_GE(pitch, kWidth);
  EXPECT_EQ(cudaMemset2D(pitched, pitch, 0, kWidth, kHeight), cudaSuccess);
  EXPECT_EQ(cudaMemcpy2D(pitched, pitch, source.data(), kWidth, kWidth, kHeight, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemcpy2D(seen.data(), kWidth, pitched, pitch, kWidth, kHeight, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(seen, source);
  EXPECT_EQ(cudaFree(pitched), cudaSuccess);
  cudaArray_t array = nullptr;
  cudaChannelFormatDesc channels = cudaCreateChannelDesc(32, 0, 0, 0, cudaChannelFormatKindSigned);
  ASSERT_EQ(cudaMallocArray(&array, &channels, 5, kHeight, 0), cudaSuccess);
  EXPECT_EQ(cudaMemcpy2DToArray(array, 0, 0, source.data(), kWidth, kWidth, kHeight, cudaMemcpyHostToDevice),
            cudaSuccess);
  cudaMemcpy3DParms box{};
  std::vector<int> row(5, -1);
  box.srcArray = array;
  box.srcPos = {1, 2, 0};
  box.dstPtr = {row.data(), kWidth, kWidth, 1};
  box.extent = {4, 1, 1};
  box.kind = cudaMemcpyDeviceToHost;
  EXPECT_EQ(cudaMemcpy3D(&box), cudaSuccess);
  EXPECT_EQ(row, (std::vector<int>{11, 12, 13, 14, -1}));
  EXPECT_EQ(cudaFreeArray(array), cudaSuccess);
}

TEST_F(Runtime, SaysWhatAPointerIs) {
  DeviceValues device(10);
  void *pinned = nullptr, *managed = nullptr;
  int local = 0;
  ASSERT_EQ(cudaMallocHost(&pinned, 100), cudaSuccess);
  ASSERT_EQ(cudaMallocManaged(&managed, 100, cudaMemAttachGlobal), cudaSuccess);
  auto type_of = [](const void* pointer) {
    cudaPointerAttributes attributes{};
    EXPECT_EQ(cudaPointerGetAttributes(&attributes, pointer), cudaSuccess);
    return attributes.type;
  };
  EXPECT_EQ(type_of(device.values), cudaMemoryTypeDevice);
  EXPECT_EQ(type_of(pinned), cudaMemoryTypeHost);
  EXPECT_EQ(type_of(managed), cudaMemoryTypeManaged);
  EXPECT_EQ(type_of(&local), cudaMemoryTypeUnregistered);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaFree(managed), cudaSuccess);
}

TEST_F(Runtime, LaunchesHostFunctionsAsKernels) {
  DeviceValues device(100);
  EXPECT_EQ(device.add_one(), cudaSuccess);
  std::vector<int> expected = counted(100);
  for (int& value : expected) ++value;
  EXPECT_EQ(device.read(), expected);
  EXPECT_EQ(calls_during("cuLaunchKernel_ptsz",
                         [&] {
                           void* arguments[] = {&device.values, &device.count};
                           EXPECT_EQ(cudaLaunchKernel_ptsz(&add_stub, dim3(1), dim3(1), arguments, 0, nullptr),
                                     cudaSuccess);
                           EXPECT_EQ(cudaStreamSynchronize_ptsz(nullptr), cudaSuccess);
                         }),
            1);
  for (int& value : expected) ++value;
  EXPECT_EQ(device.read(), expected);
  EXPECT_EQ(cudaLaunchKernel(&unknown_stub, dim3(1), dim3(1), nullptr, 0, nullptr), cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDeviceFunction);
}

TEST_F(Runtime, TwinsAskForThePerThreadFunctions) {
  DeviceValues device(10);
  std::vector<int> seen(10, -1);
  EXPECT_EQ(calls_during("cuMemcpyDtoH_v2_ptds",
                         [&] {
                           EXPECT_EQ(
                               cudaMemcpy_ptds(seen.data(), device.values, device.bytes(), cudaMemcpyDeviceToHost),
                               cudaSuccess);
                         }),
            1);
  EXPECT_EQ(seen, counted(10));
  void* ordered = nullptr;
  EXPECT_EQ(calls_during("cuMemAllocAsync_ptsz",
                         [&] { EXPECT_EQ(cudaMallocAsync_ptsz(&ordered, 100, nullptr), cudaSuccess); }),
            1);
  EXPECT_EQ(cudaFree(ordered), cudaSuccess);
  void *legacy = nullptr, *per_thread = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
  EXPECT_EQ(cudaGetDriverEntryPointByVersion("cuMemcpyHtoD", &legacy, 13000, cudaEnableDefault, &status), cudaSuccess);
  EXPECT_EQ(status, cudaDriverEntryPointSuccess);
  EXPECT_EQ(cudaGetDriverEntryPointByVersion_ptsz("cuMemcpyHtoD", &per_thread, 13000, cudaEnableDefault, &status),
            cudaSuccess);
  EXPECT_NE(legacy, nullptr);
  EXPECT_NE(per_thread, nullptr);
  EXPECT_NE(legacy, per_thread);
}

TEST_F(Runtime, StreamsAndEventsOrderWork) {
  cudaStream_t stream = nullptr, other = nullptr;
  cudaEvent_t start = nullptr, done = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&start), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&done), cudaSuccess);
  DeviceValues device(10);
  std::vector<int> seen(10, -1);
  EXPECT_EQ(cudaEventRecord(start, stream), cudaSuccess);
  EXPECT_EQ(device.add_one(stream), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(done, stream), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(other, done, 0), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(seen.data(), device.values, device.bytes(), cudaMemcpyDeviceToHost, other), cudaSuccess);
  bool called = false;
  EXPECT_EQ(cudaLaunchHostFunc(
                other, [](void* flag) { *static_cast<bool*>(flag) = true; }, &called),
            cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  EXPECT_TRUE(called);
  EXPECT_EQ(seen[9], 10);
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(done), cudaSuccess);
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, done), cudaSuccess);
  EXPECT_GE(milliseconds, 0);
  EXPECT_EQ(cudaEventDestroy(start), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(done), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

// The reset makes the launch load its kernel while the stream captures.
TEST_F(Runtime, CapturesAFirstLaunch) {
  ASSERT_EQ(cudaDeviceReset(), cudaSuccess);
  DeviceValues device(10);
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(device.add_one(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamIsCapturing(stream, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(device.read(), counted(10));
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  for (int round = 0; round < 3; ++round) EXPECT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(device.read()[0], 3);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(Runtime, DescribesDevices) {
  int count = 0, value = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, simcuda_value("devices"));
  cudaDeviceProp properties{};
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  EXPECT_NE(properties.name[0], 0);
  size_t free_bytes = 0, total_bytes = 0;
  EXPECT_EQ(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
  EXPECT_EQ(properties.totalGlobalMem, total_bytes);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrUnifiedAddressing, 0), cudaSuccess);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(cudaSetDevice(count), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
}

TEST_F(Runtime, CopiesBetweenDevices) {
  DeviceValues here(10);
  void* there = nullptr;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&there, here.bytes()), cudaSuccess);
  EXPECT_EQ(cudaMemcpyPeer(there, 1, here.values, 0, here.bytes()), cudaSuccess);
  std::vector<int> seen(10, -1);
  EXPECT_EQ(cudaMemcpy(seen.data(), there, here.bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(seen, counted(10));
  EXPECT_EQ(cudaFree(there), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST_F(Runtime, StartsAgainAfterAReset) {
  void* lost = nullptr;
  ASSERT_EQ(cudaMalloc(&lost, 100), cudaSuccess);
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
  EXPECT_EQ(cudaFree(lost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  DeviceValues device(10);
  EXPECT_EQ(device.add_one(), cudaSuccess);
  EXPECT_EQ(device.read()[0], 1);
}

TEST_F(Runtime, StartsAgainAfterAResetThroughTheDriver) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult status;
  ASSERT_EQ(cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxReset", &function, 13000, 0, &status), cudaSuccess);
  ASSERT_EQ(reinterpret_cast<int (*)(int)>(function)(0), 0);
  DeviceValues device(10);
  EXPECT_EQ(device.read(), counted(10));
}

TEST_F(Runtime, FaultsLoseTheContext) {
  DeviceValues* device = new DeviceValues(10);               // lost with the context
  ASSERT_EQ(simcuda_set_value("fault_loses_device", 0), 0);  // other tests follow in this process
  ASSERT_EQ(simcuda_set_value("fault", 1), 0);
  device->add_one();
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  void* pointer = nullptr;
  EXPECT_EQ(cudaMalloc(&pointer, 100), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaFree(nullptr), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&pointer, 100), cudaSuccess);
  EXPECT_EQ(cudaFree(pointer), cudaSuccess);
}

TEST_F(Runtime, PassesOnTheDriversFailures) {
  void* pointer = nullptr;
  int failures = 0;
  for (int nth = 1; nth <= 2; ++nth) {
    ASSERT_EQ(simcuda_set_value("fail_at", nth), 0);
    failures += cudaMalloc(&pointer, 100) != cudaSuccess;
    ASSERT_EQ(simcuda_set_value("fail_at", 0), 0);
    if (cudaGetLastError() == cudaSuccess) cudaFree(pointer);
  }
  EXPECT_EQ(failures, 2) << "the query of the current context and the allocation can both fail";
}

TEST_F(Runtime, RefusesByName) {
  int symbol = 0, value = 0;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(cudaMemcpyToSymbol(&symbol, &value, sizeof value, 0, cudaMemcpyHostToDevice), cudaErrorNotSupported);
  EXPECT_EQ(cudaMemcpyToSymbol(&symbol, &value, sizeof value, 0, cudaMemcpyHostToDevice), cudaErrorNotSupported);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "simcuda: cudaMemcpyToSymbol is not simulated\n");
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotSupported);
}

}  // namespace
