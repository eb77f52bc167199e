// One reason per run, named by the argument, for which memory goes past the pool. Each call that such a reason keeps
// from the pool prints its code; the test knows how often the reason must be counted.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "tests/simcuda/simcuda.h"

namespace {

constexpr size_t kBytes = 1 << 20;

void need(CUresult code, const char* what) {
  if (code == CUDA_SUCCESS) return;
  std::printf("set-up failed: %s: %d\n", what, code);
  std::exit(90);
}
#define NEED(call) need(call, #call)
#define SHOW(call) std::printf("%s: %d\n", #call, call)

CUdeviceptr new_block() {
  CUdeviceptr block = 0;
  NEED(cuMemAlloc(&block, kBytes));
  return block;
}
void* new_pinned(size_t bytes) {
  void* block = nullptr;
  NEED(cuMemHostAlloc(&block, bytes, 0));
  return block;
}

// An allocation and a free that the driver refuses, and that spoil the capture, as they do without a pool.
void capturing() {
  const CUdeviceptr before = new_block();
  NEED(cuMemFree(new_block()));
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUdeviceptr block = 0;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  SHOW(cuMemAlloc(&block, kBytes));
  SHOW(cuMemFree(before));
  SHOW(cuStreamEndCapture(stream, &graph));
  NEED(cuStreamDestroy(stream));
  SHOW(cuMemFree(before));
}

// Waits for nothing, so that a capture in relaxed mode goes on: the block comes back when the context was waited for.
void capturing_relaxed() {
  const CUdeviceptr before = new_block();
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  SHOW(cuMemFree(before));
  SHOW(cuStreamEndCapture(stream, &graph));
  NEED(cuGraphDestroy(graph));
  NEED(cuStreamDestroy(stream));
  NEED(cuCtxSynchronize());
  NEED(cuMemFree(new_block()));
  std::printf("captures spoilt: %lld\n", simcuda_value("invalidated_captures"));
}

void exported() {
  const CUdeviceptr shared = new_block(), marked = new_block(), neither = new_block();
  CUipcMemHandle handle;
  int on = 1;
  NEED(cuIpcGetMemHandle(&handle, shared));
  NEED(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, marked));
  for (CUdeviceptr block : {shared, marked, neither}) SHOW(cuMemFree(block));
}

void ordered() {
  SHOW(cuMemFreeAsync(new_block(), nullptr));
  NEED(cuCtxSynchronize());
}

void pitched() {
  for (size_t width : {1000u, 1000u, 3000u, 1000u}) {
    CUdeviceptr block = 0;
    size_t pitch = 0;
    NEED(cuMemAllocPitch(&block, &pitch, width, 50, 4));
    std::printf("width %zu has pitch %zu\n", width, pitch);
    NEED(cuMemFree(block));
  }
}

// One call answers as if the context were broken; what comes after goes to the driver, whatever that says.
void context_in_error() {
  const CUdeviceptr before = new_block();
  simcuda_set_value("fail_code", CUDA_ERROR_ILLEGAL_ADDRESS);
  simcuda_set_value("fail_at", 1);
  SHOW(cuStreamSynchronize(nullptr));
  CUdeviceptr block = 0;
  SHOW(cuMemAlloc(&block, kBytes));
  SHOW(cuMemFree(before));
  SHOW(cuMemFree(block));
}

CUdeviceptr freed_at_exit;
void* pinned_freed_at_exit;
void* piece_freed_at_exit;
void exiting() {
  freed_at_exit = new_block();
  pinned_freed_at_exit = new_pinned(kBytes);
  piece_freed_at_exit = new_pinned(100);
  std::atexit([] {
    SHOW(cuMemFree(freed_at_exit));
    SHOW(cuMemFreeHost(pinned_freed_at_exit));
    SHOW(cuMemFreeHost(piece_freed_at_exit));
    CUdeviceptr block = 0;
    SHOW(cuMemAlloc(&block, kBytes));
    SHOW(cuMemFree(block));
  });
}

void without_context() {
  const CUdeviceptr block = new_block();
  NEED(cuCtxSetCurrent(nullptr));
  SHOW(cuMemFree(block));
}

struct Case {
  const char* name;
  void (*run)();
};
constexpr Case kCases[] = {{"capturing", capturing}, {"capturing_relaxed", capturing_relaxed},
                           {"exported", exported},   {"ordered", ordered},
                           {"pitched", pitched},     {"context_in_error", context_in_error},
                           {"exiting", exiting},     {"without_context", without_context}};

}  // namespace

int main(int argc, char** argv) {
  CUdevice device = 0;
  CUcontext context = nullptr;
  NEED(cuInit(0));
  NEED(cuDeviceGet(&device, 0));
  NEED(cuDevicePrimaryCtxRetain(&context, device));
  NEED(cuCtxSetCurrent(context));
  for (const Case& one : kCases)
    if (argc == 2 && !std::strcmp(one.name, argv[1])) return one.run(), 0;
  return 2;
}
