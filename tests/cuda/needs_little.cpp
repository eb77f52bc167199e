// Asks little of the driver: a few functions of it, none of which missing_functions.py takes out. Memory taken and
// given back, and copies that may be staged, by two threads at once; and a function that a graph runs more than once.
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace {

std::atomic<bool> failed{false};

void need(CUresult answer, const char* what) {
  if (answer == CUDA_SUCCESS) return;
  printf("%s: %d\n", what, answer);
  failed = true;
}
#define NEED(call) need(call, #call)

void work(CUcontext context) {
  constexpr size_t kBytes = size_t{1} << 20, kRows = 256;
  NEED(cuCtxSetCurrent(context));
  CUstream stream = nullptr;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::vector<unsigned> there(kBytes / sizeof(unsigned)), back(there.size());
  for (unsigned round = 1; round <= 3; ++round) {
    for (size_t i = 0; i < there.size(); ++i) there[i] = static_cast<unsigned>(i) * round;
    CUdeviceptr block = 0;
    NEED(cuMemAlloc(&block, kBytes));
    if (round % 2) {
      NEED(cuMemcpyHtoDAsync(block, there.data(), kBytes, stream));
    } else {
      CUDA_MEMCPY2D copy = {};
      copy.srcMemoryType = CU_MEMORYTYPE_HOST;
      copy.srcHost = there.data();
      copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
      copy.dstDevice = block;
      copy.srcPitch = copy.dstPitch = copy.WidthInBytes = kBytes / kRows;
      copy.Height = kRows;
      NEED(cuMemcpy2DAsync(&copy, stream));
    }
    NEED(cuMemcpyDtoHAsync(back.data(), block, kBytes, stream));
    if (there != back) need(CUDA_ERROR_UNKNOWN, "contents");
    NEED(cuMemcpyHtoD(block, there.data(), kBytes));
    NEED(cuMemFree(block));
  }
  NEED(cuStreamDestroy(stream));
}

std::atomic<int> runs{0};
void count(void*) { ++runs; }

void run_by_a_graph() {
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  NEED(cuLaunchHostFunc(stream, count, nullptr));
  NEED(cuStreamEndCapture(stream, &graph));
  NEED(cuGraphInstantiate(&executable, graph, 0));
  for (int round = 0; round < 3; ++round) NEED(cuGraphLaunch(executable, stream));
  NEED(cuStreamDestroy(stream));
  for (int wait = 0; wait < 10000 && runs != 3; ++wait) usleep(1000);  // to wait for the stream is one function more
  if (runs != 3) need(CUDA_ERROR_UNKNOWN, "runs");
}

}  // namespace

int main() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  NEED(cuInit(0));
  NEED(cuDeviceGet(&device, 0));
  NEED(cuDevicePrimaryCtxRetain(&context, device));
  std::thread other(work, context);
  work(context);
  other.join();
  run_by_a_graph();
  if (failed) return 1;
  puts("all is as it should be");
  return 0;
}
