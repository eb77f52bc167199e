// The simulated driver's own tests: stream capture and graphs.
#include <thread>

#include "tests/simcuda/checks/driver_test_support.hpp"

namespace {

CUstreamCaptureStatus status_of(CUstream stream) {
  CUstreamCaptureStatus status{};
  EXPECT_CU(CUDA_SUCCESS, cuStreamIsCapturing(stream, &status));
  return status;
}

// Ends the capture of a stream and expects that it was invalidated.
void expect_invalidated(CUstream stream) {
  CUgraph graph = nullptr;
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_INVALIDATED, status_of(stream));
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
  EXPECT_EQ(nullptr, graph);
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status_of(stream));
}

TEST_F(Driver, CapturedWorkRunsAtEachLaunch) {
  const CUdeviceptr memory = allocate(8);
  const CUfunction store = store_kernel();
  const CUstream one = stream();
  ASSERT_CU(cuMemsetD8(memory, 0, 8));
  static int host_calls;
  host_calls = 0;
  ASSERT_CU(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_CU(launch_store(store, memory, 5, one));
  ASSERT_CU(cuMemcpyDtoDAsync(memory + 4, memory, 4, one));
  ASSERT_CU(cuLaunchHostFunc(
      one, [](void*) { ++host_calls; }, nullptr));
  CUgraph graph = nullptr;
  ASSERT_CU(cuStreamEndCapture(one, &graph));
  EXPECT_EQ(0U, word_at(memory));
  CUgraphExec executable = nullptr;
  ASSERT_CU(cuGraphInstantiate(&executable, graph, 0));
  size_t nodes = 0;
  ASSERT_CU(cuGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(3U, nodes);
  ASSERT_CU(cuGraphDestroy(graph));
  ASSERT_CU(cuGraphLaunch(executable, one));
  ASSERT_CU(cuGraphLaunch(executable, one));
  ASSERT_CU(cuStreamSynchronize(one));
  EXPECT_EQ(5U, word_at(memory + 4));
  EXPECT_EQ(2, host_calls);
  ASSERT_CU(cuGraphExecDestroy(executable));
}

// Each potentially unsafe call, alone in a capture of each mode.
TEST_F(Driver, UnsafeCallsInvalidateCaptures) {
  const CUdeviceptr memory = allocate(4);
  const CUstream one = stream(), other = stream();
  const CUevent idle = event();
  ASSERT_CU(cuEventRecord(idle, other));
  void* host = pin(4);
  const std::vector<std::pair<const char*, std::function<CUresult()>>> calls = {
      {"cuMemAlloc",
       [] {
         CUdeviceptr p;
         return cuMemAlloc(&p, 4);
       }},
      {"cuMemAllocHost",
       [] {
         void* p;
         return cuMemAllocHost(&p, 4);
       }},
      {"cuMemFree", [&] { return cuMemFree(memory); }},
      {"cuMemFreeHost", [&] { return cuMemFreeHost(host); }},
      {"cuEventQuery", [&] { return cuEventQuery(idle); }},
      {"cuEventSynchronize", [&] { return cuEventSynchronize(idle); }},
      {"cuStreamSynchronize", [&] { return cuStreamSynchronize(other); }},
      {"cuStreamQuery", [&] { return cuStreamQuery(other); }},
  };
  for (const auto& [name, call] : calls) {
    for (const auto mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL}) {
      const long long invalidated = simcuda_get("invalidated_captures");
      ASSERT_CU(cuStreamBeginCapture(one, mode));
      EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, call()) << name;
      expect_invalidated(one);
      EXPECT_EQ(invalidated + 1, simcuda_get("invalidated_captures")) << name;
    }
  }
  ASSERT_CU(cuMemFree(memory)) << "the refused call has freed it";
  ASSERT_CU(cuMemFreeHost(host));
}

TEST_F(Driver, RelaxedModeAllowsUnsafeCalls) {
  const CUstream one = stream();
  CUgraph graph = nullptr;
  ASSERT_CU(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_CU(cuMemFree(allocate(4)));
  ASSERT_CU(cuStreamEndCapture(one, &graph));
  ASSERT_CU(cuGraphDestroy(graph));
  // The thread's own mode does the same for a global capture.
  ASSERT_CU(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  ASSERT_CU(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(CU_STREAM_CAPTURE_MODE_GLOBAL, mode);
  ASSERT_CU(cuMemFree(allocate(4)));
  ASSERT_CU(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(CU_STREAM_CAPTURE_MODE_RELAXED, mode);
  ASSERT_CU(cuStreamEndCapture(one, &graph));
  ASSERT_CU(cuGraphDestroy(graph));
}

TEST_F(Driver, OtherThreadsAreBoundByGlobalCapturesOnly) {
  const CUstream one = stream();
  CUgraph graph = nullptr;
  const auto allocate_elsewhere = [this] {
    CUresult result = CUDA_SUCCESS;
    std::thread([&] {
      cuCtxSetCurrent(context);
      CUdeviceptr memory = 0;
      result = cuMemAlloc(&memory, 4);
      if (result == CUDA_SUCCESS) cuMemFree(memory);
    }).join();
    return result;
  };
  ASSERT_CU(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_CU(CUDA_SUCCESS, allocate_elsewhere());
  ASSERT_CU(cuStreamEndCapture(one, &graph));
  ASSERT_CU(cuGraphDestroy(graph));
  ASSERT_CU(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, allocate_elsewhere());
  expect_invalidated(one);
}

TEST_F(Driver, SynchronizingTheContextOrTheLegacyStreamInvalidates) {
  const CUdeviceptr memory = allocate(4);
  const CUstream blocking = stream(CU_STREAM_DEFAULT);
  for (const auto mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED}) {
    ASSERT_CU(cuStreamBeginCapture(blocking, mode));
    EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize());
    expect_invalidated(blocking);
    unsigned value = 0;
    ASSERT_CU(cuStreamBeginCapture(blocking, mode));
    EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemcpyHtoD(memory, &value, 4));
    expect_invalidated(blocking);
  }
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
            cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

TEST_F(Driver, StreamsJoinACaptureByEvents) {
  const CUdeviceptr memory = allocate(4);
  const CUfunction store = store_kernel();
  const CUstream one = stream(), two = stream();
  const CUevent fork = event(), join = event(), outside = event();
  CUgraph graph = nullptr;
  ASSERT_CU(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_CU(cuEventRecord(fork, one));
  ASSERT_CU(cuStreamWaitEvent(two, fork, 0));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status_of(two));
  ASSERT_CU(launch_store(store, memory, 9, two));
  CUgraph unjoined = nullptr;
  ASSERT_CU(cuEventRecord(join, two));
  ASSERT_CU(cuStreamWaitEvent(one, join, 0));
  ASSERT_CU(cuStreamEndCapture(one, &graph));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status_of(two));
  EXPECT_CU(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(join));
  ASSERT_CU(cuGraphDestroy(graph));

  ASSERT_CU(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_CU(cuEventRecord(fork, one));
  ASSERT_CU(cuStreamWaitEvent(two, fork, 0));
  ASSERT_CU(launch_store(store, memory, 9, two));
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(one, &unjoined));

  ASSERT_CU(cuEventRecord(outside, two));
  ASSERT_CU(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(one, outside, 0));
  expect_invalidated(one);
}

TEST_F(Driver, EndingACaptureWrongly) {
  const CUstream one = stream();
  CUgraph graph = nullptr;
  EXPECT_CU(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(one, &graph));
  ASSERT_CU(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUresult elsewhere = CUDA_SUCCESS;
  std::thread([&] {
    cuCtxSetCurrent(context);
    CUgraph other = nullptr;
    elsewhere = cuStreamEndCapture(one, &other);
  }).join();
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, elsewhere);
  expect_invalidated(one);
}

TEST_F(Driver, MemoryNodesLiveAsLongAsTheirGraph) {
  const size_t before = free_bytes();
  const CUfunction store = store_kernel();
  const CUstream one = stream();
  const CUdeviceptr result = allocate(4);
  CUdeviceptr memory = 0;
  CUgraph graph = nullptr;
  ASSERT_CU(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_CU(cuMemAllocAsync(&memory, 4, one));
  ASSERT_CU(launch_store(store, memory, 3, one));
  ASSERT_CU(cuMemcpyDtoDAsync(result, memory, 4, one));
  ASSERT_CU(cuMemFreeAsync(memory, one));
  ASSERT_CU(cuStreamEndCapture(one, &graph));
  CUgraphExec executable = nullptr;
  ASSERT_CU(cuGraphInstantiate(&executable, graph, 0));
  ASSERT_CU(cuGraphDestroy(graph));
  ASSERT_CU(cuGraphLaunch(executable, one));
  ASSERT_CU(cuGraphExecDestroy(executable));
  ASSERT_CU(cuStreamSynchronize(one));
  EXPECT_EQ(3U, word_at(result));
  EXPECT_EQ(0xDBDBDBDBU, *reinterpret_cast<unsigned*>(memory));
  ASSERT_CU(cuMemFree(result));
  EXPECT_EQ(before, free_bytes());
}

TEST_F(Driver, WhatNoNodeFreesOutlivesItsGraphOnceLaunched) {
  const size_t before = free_bytes();
  for (const bool launched : {false, true}) {
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    CUgraphExec executable = nullptr;
    CUDA_MEM_ALLOC_NODE_PARAMS memory{};
    memory.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    memory.bytesize = 4096;
    ASSERT_CU(cuGraphCreate(&graph, 0));
    ASSERT_CU(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &memory));
    ASSERT_CU(cuGraphInstantiate(&executable, graph, 0));
    if (launched) {
      ASSERT_CU(cuGraphLaunch(executable, nullptr));
    }
    ASSERT_CU(cuCtxSynchronize());
    ASSERT_CU(cuGraphExecDestroy(executable));
    ASSERT_CU(cuGraphDestroy(graph));
    cuuint64_t used = 0;
    ASSERT_CU(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
    EXPECT_EQ(launched ? 4096U : 0U, used);
    EXPECT_EQ(launched ? before - 4096 : before, free_bytes());
    if (launched) {
      ASSERT_CU(cuMemFree(memory.dptr));
    }
    EXPECT_EQ(before, free_bytes());
  }
}

TEST_F(Driver, GraphsBuiltNodeByNode) {
  const CUdeviceptr memory = allocate(8);
  CUgraph graph = nullptr;
  ASSERT_CU(cuGraphCreate(&graph, 0));
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = memory;
  fill.value = 0x11223344;
  fill.elementSize = 4;
  fill.width = 1;
  fill.height = 1;
  CUgraphNode first = nullptr, second = nullptr;
  ASSERT_CU(cuGraphAddMemsetNode(&first, graph, nullptr, 0, &fill, context));
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = memory;
  copy.dstDevice = memory + 4;
  copy.WidthInBytes = 4;
  copy.Height = copy.Depth = 1;
  ASSERT_CU(cuGraphAddMemcpyNode(&second, graph, &first, 1, &copy, context));
  CUgraphNodeType type{};
  ASSERT_CU(cuGraphNodeGetType(second, &type));
  EXPECT_EQ(CU_GRAPH_NODE_TYPE_MEMCPY, type);
  CUgraphExec executable = nullptr;
  ASSERT_CU(cuGraphInstantiate(&executable, graph, 0));
  ASSERT_CU(cuGraphLaunch(executable, nullptr));
  EXPECT_EQ(0x11223344U, word_at(memory + 4));
  ASSERT_CU(cuGraphExecDestroy(executable));
  ASSERT_CU(cuGraphDestroy(graph));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(graph));
}

}  // namespace
