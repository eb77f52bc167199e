// The simulated driver's own tests: work on virtual memory that is unmapped under it, and calls that fail.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/simcuda/checks/virtual_memory_support.hpp"

namespace {

// A kernel that writes one word again and again, until it is told to stop.
std::atomic<bool> writing{false}, stop_writing{false};
CUfunction endless_kernel() {
  static const size_t bytes[] = {sizeof(CUdeviceptr)};
  simcuda_define(
      "write_on", reinterpret_cast<const void*>(&bytes),
      [](void** arguments) {
        while (!stop_writing) {
          **static_cast<volatile unsigned**>(arguments[0]) = 1;
          writing = true;
        }
      },
      1, bytes);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  EXPECT_CU(CUDA_SUCCESS, cuModuleLoadData(&module, "any image"));
  EXPECT_CU(CUDA_SUCCESS, cuModuleGetFunction(&function, module, "write_on"));
  return function;
}

TEST_F(VirtualMemory, UnmappingDoesNotWaitAndWorkThatGoesOnFaults) {
  const Mapped memory(2);
  const long long before = simcuda_get("unmapped_in_use");
  void* arguments[] = {const_cast<CUdeviceptr*>(&memory.address)};
  writing = stop_writing = false;
  ASSERT_CU(cuLaunchKernel(endless_kernel(), 1, 1, 1, 1, 1, 1, 0, stream(), arguments, nullptr));
  while (!writing) std::this_thread::yield();
  ASSERT_CU(cuMemUnmap(memory.address + kUnit, kUnit));
  EXPECT_EQ(before, simcuda_get("unmapped_in_use")) << "it uses the other page";
  ASSERT_CU(cuMemUnmap(memory.address, kUnit));
  EXPECT_EQ(before + 1, simcuda_get("unmapped_in_use"));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  stop_writing = true;
}

TEST_F(VirtualMemory, QueuedWorkOfEachKindFaultsOnMemoryThatIsGone) {
  const CUfunction store = store_kernel();
  void* const pinned = pin(kUnit);
  constexpr CUresult kAddress = CUDA_ERROR_ILLEGAL_ADDRESS, kCopy = CUDA_ERROR_LAUNCH_FAILED;
  const std::pair<CUresult, std::function<void(CUdeviceptr, CUstream)>> kinds[] = {
      {kAddress, [](CUdeviceptr memory, CUstream in) { ASSERT_CU(cuMemsetD32Async(memory, 1, 100, in)); }},
      {kCopy, [&](CUdeviceptr memory, CUstream in) { ASSERT_CU(cuMemcpyHtoDAsync(memory, pinned, kUnit, in)); }},
      {kCopy, [&](CUdeviceptr memory, CUstream in) { ASSERT_CU(cuMemcpyDtoHAsync(pinned, memory, kUnit, in)); }},
      {kAddress, [&](CUdeviceptr memory, CUstream in) { ASSERT_CU(launch_store(store, memory, 1, in)); }},
      {kAddress, [](CUdeviceptr memory, CUstream in) { ASSERT_CU(cuStreamWriteValue32(in, memory, 1, 0)); }},
      {kCopy, [](CUdeviceptr memory, CUstream in) {
         std::vector<char> pageable(1000);
         ASSERT_CU(cuMemcpyHtoDAsync(memory, pageable.data(), pageable.size(), in));
       }}};
  for (const auto& [error, queue] : kinds) {
    const Mapped memory(1);
    const long long in_use = simcuda_get("unmapped_in_use"), faults = simcuda_get("faults");
    const InContext other(0);
    const Held held(stream());
    queue(memory.address, held.in);
    ASSERT_CU(cuMemUnmap(memory.address, kUnit));
    EXPECT_EQ(in_use + 1, simcuda_get("unmapped_in_use"));
    held.go_on();
    EXPECT_CU(error, cuCtxSynchronize());
    EXPECT_EQ(faults + 1, simcuda_get("faults"));
  }
  ASSERT_CU(cuMemFreeHost(pinned));
}

TEST_F(VirtualMemory, AFaultIsOfTheContextThatWorkedAndEndsItsWork) {
  const Mapped memory(1);
  const CUdeviceptr other = allocate(4);
  ASSERT_CU(cuMemsetD32(other, 5, 1));
  {
    const InContext faulty(0);
    const Held held(stream());
    ASSERT_CU(cuMemsetD32Async(memory.address, 1, 1, held.in));
    ASSERT_CU(cuMemsetD32Async(other, 6, 1, held.in));
    ASSERT_CU(cuMemUnmap(memory.address, kUnit));
    held.go_on();
    EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  }
  EXPECT_EQ(5U, word_at(other)) << "what was queued after the fault has run";
  ASSERT_CU(cuMemFree(other));
}

TEST_F(VirtualMemory, MemoryThatIsUnmappedAfterItsWorkCountsAsUnused) {
  const Mapped memory(1);
  const long long before = simcuda_get("unmapped_in_use");
  ASSERT_CU(launch_store(store_kernel(), memory.address, 1, stream()));
  ASSERT_CU(cuCtxSynchronize());
  ASSERT_CU(cuMemUnmap(memory.address, kUnit));
  EXPECT_EQ(before, simcuda_get("unmapped_in_use"));
}

TEST_F(VirtualMemory, QueuedWorkGoesToTheMemoryThatIsMappedWhenItRuns) {
  const Mapped memory(2);
  const CUstream late = stream();
  ASSERT_CU(cuMemsetD8(memory.address, 0, memory.bytes()));
  ASSERT_CU(cuCtxSynchronize());
  const long long before = simcuda_get("unmapped_in_use");
  const Held held(late);
  ASSERT_CU(launch_store(store_kernel(), memory.address, 9, late));
  ASSERT_CU(cuMemUnmap(memory.address, 2 * kUnit));
  ASSERT_CU(cuMemMap(memory.address, kUnit, 0, memory.handles[1], 0));
  allow(memory.address, kUnit, {0});
  held.go_on();
  ASSERT_CU(cuCtxSynchronize());
  EXPECT_EQ(9U, word_at(memory.address)) << "without a fault, but in the wrong memory";
  EXPECT_EQ(before + 1, simcuda_get("unmapped_in_use"));
}

TEST(VirtualMemoryDeathTest, AFaultOfTheProgramsOwnEndsIt) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        cuInit(0);
        CUdeviceptr address = 0;
        cuMemAddressReserve(&address, kUnit, 0, 0, 0);
        *reinterpret_cast<volatile int*>(address) = 1;
      },
      testing::KilledBySignal(SIGSEGV), "");
}

TEST(VirtualMemoryDeathTest, AHandlerOfTheProgramGetsItsOwnFaults) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        signal(SIGSEGV, [](int) { _exit(7); });
        cuInit(0);
        CUdeviceptr address = 0;
        cuMemAddressReserve(&address, kUnit, 0, 0, 0);
        raise(SIGSEGV);
      },
      testing::ExitedWithCode(7), "");
}

TEST(VirtualMemoryDeathTest, ALineAtTheEndSaysThatMemoryWasUnmappedInUse) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        cuInit(0);
        CUcontext context = nullptr;
        cuCtxCreate_v2(&context, 0, 0);
        simcuda_set("vmm_exit_line", 1);
        {
          const Mapped memory(1);
          CUstream in = nullptr;
          cuStreamCreate(&in, CU_STREAM_NON_BLOCKING);
          const Held held(in);
          cuMemsetD8Async(memory.address, 1, 1, in);
          cuMemUnmap(memory.address, kUnit);
        }
        exit(3);
      },
      testing::ExitedWithCode(3), "simcuda: memory was unmapped under 1 commands, and before 0 launches of graphs");
}

// A graph that fills the first word of the memory, captured from a stream.
CUgraphExec graph_that_fills(CUstream in, CUdeviceptr memory) {
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  EXPECT_CU(CUDA_SUCCESS, cuStreamBeginCapture(in, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_CU(CUDA_SUCCESS, cuMemsetD32Async(memory, 8, 1, in));
  EXPECT_CU(CUDA_SUCCESS, cuStreamEndCapture(in, &graph));
  EXPECT_CU(CUDA_SUCCESS, cuGraphInstantiate(&executable, graph, 0));
  EXPECT_CU(CUDA_SUCCESS, cuGraphDestroy(graph));
  return executable;
}

TEST_F(VirtualMemory, AGraphWhoseMemoryIsReplacedUsesTheNewOneAndIsCounted) {
  const Mapped memory(2);
  const CUstream in = stream();
  const CUgraphExec graph = graph_that_fills(in, memory.address);
  const long long before = simcuda_get("stale_graph_launches");
  ASSERT_CU(cuGraphLaunch(graph, in));
  ASSERT_CU(cuStreamSynchronize(in));
  EXPECT_EQ(before, simcuda_get("stale_graph_launches"));
  ASSERT_CU(cuMemUnmap(memory.address, 2 * kUnit));
  ASSERT_CU(cuMemMap(memory.address, kUnit, 0, memory.handles[1], 0));
  allow(memory.address, kUnit, {0});
  ASSERT_CU(cuGraphLaunch(graph, in));
  ASSERT_CU(cuStreamSynchronize(in));
  EXPECT_EQ(8U, word_at(memory.address));
  EXPECT_EQ(before + 1, simcuda_get("stale_graph_launches"));
  ASSERT_CU(cuMemUnmap(memory.address, kUnit));
  ASSERT_CU(cuMemMap(memory.address, kUnit, 0, memory.handles[0], 0));
  allow(memory.address, kUnit, {0});
  ASSERT_CU(cuGraphLaunch(graph, in));
  ASSERT_CU(cuStreamSynchronize(in));
  EXPECT_EQ(before + 1, simcuda_get("stale_graph_launches")) << "its own memory is back";
  ASSERT_CU(cuGraphExecDestroy(graph));
}

TEST_F(VirtualMemory, AGraphFaultsOnOtherMemoryWhereTheSettingSaysSo) {
  const Mapped memory(2);
  const CUstream in = stream();
  const CUgraphExec graph = graph_that_fills(in, memory.address);
  ASSERT_CU(cuMemUnmap(memory.address, 2 * kUnit));
  ASSERT_CU(cuMemMap(memory.address, kUnit, 0, memory.handles[1], 0));
  allow(memory.address, kUnit, {0});
  simcuda_set("stale_graphs_fault", 1);
  ASSERT_CU(cuGraphLaunch(graph, in));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  EXPECT_CU(CUDA_SUCCESS, cuGraphExecDestroy(graph));
}

TEST_F(VirtualMemory, AGraphWhoseMemoryIsGoneFaults) {
  const Mapped memory(1);
  const CUstream in = stream();
  const CUgraphExec graph = graph_that_fills(in, memory.address);
  const long long before = simcuda_get("stale_graph_launches");
  ASSERT_CU(cuMemUnmap(memory.address, kUnit));
  ASSERT_CU(cuGraphLaunch(graph, in));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  EXPECT_EQ(before + 1, simcuda_get("stale_graph_launches"));
  EXPECT_CU(CUDA_SUCCESS, cuGraphExecDestroy(graph));
}

TEST_F(VirtualMemory, AGraphWithAnAddressThatHadNoMemoryIsNotStale) {
  const Mapped memory(2);
  const CUstream in = stream();
  ASSERT_CU(cuMemUnmap(memory.address + kUnit, kUnit));
  // As the end of a range, which the kernel does not touch.
  static const size_t bytes[] = {sizeof(CUdeviceptr), sizeof(CUdeviceptr)};
  simcuda_define(
      "fill_range", reinterpret_cast<const void*>(&bytes),
      [](void** arguments) { **static_cast<unsigned**>(arguments[0]) = 9; }, 2, bytes);
  CUmodule module = nullptr;
  CUfunction fill = nullptr;
  ASSERT_CU(cuModuleLoadData(&module, "any image"));
  ASSERT_CU(cuModuleGetFunction(&fill, module, "fill_range"));
  CUdeviceptr begin = memory.address, end = memory.address + kUnit;
  void* arguments[] = {&begin, &end};
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  ASSERT_CU(cuStreamBeginCapture(in, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_CU(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, in, arguments, nullptr));
  ASSERT_CU(cuStreamEndCapture(in, &graph));
  ASSERT_CU(cuGraphInstantiate(&executable, graph, 0));
  ASSERT_CU(cuMemMap(memory.address + kUnit, kUnit, 0, memory.handles[1], 0));
  allow(memory.address, 2 * kUnit, {0});
  const long long before = simcuda_get("stale_graph_launches");
  ASSERT_CU(cuGraphLaunch(executable, in));
  ASSERT_CU(cuStreamSynchronize(in));
  EXPECT_EQ(before, simcuda_get("stale_graph_launches"));
  EXPECT_EQ(9U, word_at(memory.address));
  ASSERT_CU(cuGraphExecDestroy(executable));
  ASSERT_CU(cuGraphDestroy(graph));
}

TEST_F(VirtualMemory, AGraphInFlightUsesItsMemoryToo) {
  const Mapped memory(1);
  const CUstream in = stream();
  const CUgraphExec graph = graph_that_fills(in, memory.address);
  const long long before = simcuda_get("unmapped_in_use");
  const Held held(in);
  ASSERT_CU(cuGraphLaunch(graph, in));
  ASSERT_CU(cuMemUnmap(memory.address, kUnit));
  EXPECT_EQ(before + 1, simcuda_get("unmapped_in_use"));
  held.go_on();
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  EXPECT_CU(CUDA_SUCCESS, cuGraphExecDestroy(graph));
}

// Every step of making memory usable, as a program makes it. The first failure is the answer, and what was done before
// it is undone.
CUresult make_usable() {
  const CUmemAllocationProp wanted = on_device(0);
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = cuMemAddressReserve(&address, kUnit, 0, 0, 0);
  if (result != CUDA_SUCCESS) return result;
  if ((result = cuMemCreate(&handle, kUnit, &wanted, 0)) == CUDA_SUCCESS) {
    if ((result = cuMemMap(address, kUnit, 0, handle, 0)) == CUDA_SUCCESS) {
      result = cuMemSetAccess(address, kUnit, &kDeviceZero, 1);
      EXPECT_CU(CUDA_SUCCESS, cuMemUnmap(address, kUnit));
    }
    EXPECT_CU(CUDA_SUCCESS, cuMemRelease(handle));
  }
  EXPECT_CU(CUDA_SUCCESS, cuMemAddressFree(address, kUnit));
  return result;
}

TEST_F(VirtualMemory, EachCallFailsWhereItIsToldTo) {
  const size_t before = free_bytes();
  for (const char* function : {"cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"})
    for (const CUresult code : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_UNKNOWN}) {
      const std::string name = function;
      ASSERT_EQ(0, simcuda_set(("fail_code:" + name).c_str(), code));
      ASSERT_EQ(0, simcuda_set(("fail_at:" + name).c_str(), 2));
      EXPECT_CU(CUDA_SUCCESS, make_usable()) << name;
      EXPECT_CU(code, make_usable()) << name;
      EXPECT_CU(CUDA_SUCCESS, make_usable()) << name;
      ASSERT_EQ(0, simcuda_set(("fail_code:" + name).c_str(), 0));
    }
  EXPECT_EQ(before, free_bytes());
}

TEST_F(VirtualMemory, EveryThirdCallOfOneKindFails) {
  ASSERT_EQ(0, simcuda_set("fail_every:cuMemMap", 3));
  int failures = 0;
  for (int round = 0; round < 9; ++round) failures += make_usable() == CUDA_ERROR_UNKNOWN;
  EXPECT_EQ(3, failures);
  ASSERT_EQ(0, simcuda_set("fail_every:cuMemMap", 0));
}

TEST_F(VirtualMemory, SettingsOfUnknownCallsAreUnknown) {
  EXPECT_EQ(-1, simcuda_set("fail_at:cuMemNothing", 1));
  EXPECT_EQ(-1, simcuda_set("nothing:cuMemMap", 1));
  EXPECT_EQ(-1, simcuda_set("fail_at:", 1));
  EXPECT_EQ(-1, simcuda_get("latency_ns:cuMemNothing"));
}

TEST_F(VirtualMemory, ACallTakesItsOwnTimeAndIsCounted) {
  const auto took = [] {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_CU(CUDA_SUCCESS, make_usable());
    return std::chrono::steady_clock::now() - begin;
  };
  const long long before = simcuda_get("calls:cuMemCreate");
  for (const char* setting : {"latency_ns:cuMemCreate", "latency_ns:cuMemUnmap"}) simcuda_set(setting, 5'000'000);
  EXPECT_EQ(5'000'000, simcuda_get("latency_ns:cuMemCreate"));
  EXPECT_GE(took(), std::chrono::milliseconds(10));
  for (const char* setting : {"latency_ns:cuMemCreate", "latency_ns:cuMemUnmap"}) simcuda_set(setting, 0);
  EXPECT_EQ(before + 1, simcuda_get("calls:cuMemCreate"));
}

TEST_F(VirtualMemory, FabricHandlesAreRefusedAtCreationOrAtExport) {
  constexpr auto kFabric = static_cast<CUmemAllocationHandleType>(8);
  constexpr auto kFabricSupported = static_cast<CUdevice_attribute>(128);
  CUmemAllocationProp wanted = on_device(0);
  wanted.requestedHandleTypes = kFabric;
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(0, device_attribute(kFabricSupported));
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, kUnit, &wanted, 0));
  simcuda_set("fabric", 1);
  EXPECT_EQ(1, device_attribute(kFabricSupported));
  EXPECT_CU(CUDA_ERROR_NOT_PERMITTED, cuMemCreate(&handle, kUnit, &wanted, 0));
  simcuda_set("fabric", 2);
  ASSERT_CU(cuMemCreate(&handle, kUnit, &wanted, 0));
  char shared[64] = {};
  EXPECT_CU(CUDA_ERROR_NOT_PERMITTED, cuMemExportToShareableHandle(shared, handle, kFabric, 0));
  ASSERT_CU(cuMemRelease(handle));
}

TEST_F(VirtualMemory, ADescriptorOfMemoryIsTheSameMemory) {
  const size_t before = free_bytes();
  CUmemAllocationProp wanted = on_device(0);
  wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  {
    const Mapped memory(1, wanted);
    EXPECT_EQ(before - kUnit, free_bytes());
    EXPECT_EQ(1U, attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, memory.address));
    int file = -1;
    CUmemGenericAllocationHandle imported = 0;
    ASSERT_CU(cuMemExportToShareableHandle(&file, memory.handles[0], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    ASSERT_CU(cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(static_cast<intptr_t>(file)),
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    ASSERT_EQ(0, close(file));
    EXPECT_NE(memory.handles[0], imported);
    const CUdeviceptr second = reserve(kUnit);
    ASSERT_CU(cuMemMap(second, kUnit, 0, imported, 0));
    allow(second, kUnit, {0});
    ASSERT_CU(cuMemsetD8(memory.address, 0x77, kUnit));
    EXPECT_EQ(0x77777777U, word_at(second + kUnit - 4));
    ASSERT_CU(cuMemUnmap(second, kUnit));
    ASSERT_CU(cuMemRelease(imported));
    ASSERT_CU(cuMemAddressFree(second, kUnit));
  }
  EXPECT_EQ(before, free_bytes());
}

TEST_F(VirtualMemory, OnlyMemoryThatWasMadeForItIsExported) {
  const Mapped memory(1);
  int file = -1;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuMemExportToShareableHandle(&file, memory.handles[0], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  const int other = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  CUmemGenericAllocationHandle imported = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            cuMemImportFromShareableHandle(&imported, reinterpret_cast<void*>(static_cast<intptr_t>(other)),
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  ASSERT_EQ(0, close(other));
}

TEST_F(VirtualMemory, AnOldDriverIsNotFoundToHaveIt) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  simcuda_set("vmm", -1);
  ASSERT_CU(cuGetProcAddress_v2("cuMemCreate", &found, 13000, 0, &status));
  EXPECT_EQ(nullptr, found);
  EXPECT_EQ(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, status);
  ASSERT_CU(cuGetProcAddress_v2("cuMemAlloc", &found, 13000, 0, &status));
  EXPECT_NE(nullptr, found);
  EXPECT_EQ(0, device_attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED));
}

TEST(VirtualMemoryDeathTest, TheEnvironmentSetsWhatEachCallDoes) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        setenv("SIMCUDA_EACH", "fail_at:cuMemMap=1,fail_code:cuMemMap=801,nothing:cuMemMap=1", 1);
        cuInit(0);
        _exit(make_usable() == CUDA_ERROR_NOT_SUPPORTED ? 5 : 6);
      },
      testing::ExitedWithCode(5), "simcuda: SIMCUDA_EACH: no such setting: nothing:cuMemMap=1");
}

}  // namespace
