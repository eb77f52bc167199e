// A program that shows what it sees of device memory that is cut from a range. It does what its argument says:
//   share    asks for handles for other processes of two blocks from one call site, and of one from another
//   look     asks where a block begins and how large it is, from its middle
//   beyond   sets and copies more than a block has, and what lies behind it
//   again    frees a block twice, and uses it after that
//   graph    captures a kernel on a block, frees it, and has others after it
//   exit     allocates and frees blocks of many sizes
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr size_t kBytes = 300'000;

CUdeviceptr shared_block() {
  CUdeviceptr block = 0;
  cuMemAlloc(&block, kBytes);
  return block;
}
CUdeviceptr other_block() {
  CUdeviceptr block = 0;
  cuMemAlloc(&block, kBytes);
  return block;
}

void share() {
  CUdeviceptr first = 0;
  for (int i = 0; i < 2; ++i) {
    CUdeviceptr block = shared_block();
    CUipcMemHandle handle;
    std::printf("share: %d\n", cuIpcGetMemHandle(&handle, block));
    first ? cuMemFree(block) : static_cast<CUresult>(0);
    if (!first) first = block;
  }
  CUdeviceptr other = other_block();
  CUipcMemHandle handle;
  std::printf("other: %d\n", cuIpcGetMemHandle(&handle, other));
  cuMemFree(other);
  cuMemFree(first);
}

void look() {
  CUdeviceptr small = 0, block = 0, base = 0;
  cuMemAlloc(&small, 1000);
  cuMemAlloc(&block, kBytes);
  size_t bytes = 0;
  const int code = cuMemGetAddressRange(&base, &bytes, block + 1000);
  std::printf("range: %d, begins %lld before, %zu bytes\n", code, static_cast<long long>(block + 1000 - base), bytes);
  CUcontext current = nullptr, context = nullptr;
  cuCtxGetCurrent(&current);
  const int asked = cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, block + 5);
  std::printf("context: %d, %s\n", asked, context == current ? "the current one" : "another");
  std::printf("behind it: %d\n", cuMemGetAddressRange(&base, &bytes, block + kBytes + 1000));
  cuMemFree(block);
  std::printf("freed: %d\n", cuMemGetAddressRange(&base, &bytes, block));
  cuMemFree(small);
}

void beyond() {
  CUdeviceptr block = 0, next = 0;
  cuMemAlloc(&block, kBytes);
  cuMemAlloc(&next, kBytes);
  std::vector<char> host(2 * kBytes);
  std::printf("set: %d %d\n", cuMemsetD8(block, 1, kBytes), cuMemsetD8(block, 1, 2 * kBytes));
  std::printf("copy: %d %d\n", cuMemcpyDtoH(host.data(), block, kBytes), cuMemcpyDtoH(host.data(), block, 2 * kBytes));
  std::printf("rows: %d %d\n", cuMemsetD2D32(block, 4000, 1, 1000, 75), cuMemsetD2D32(block, 4000, 1, 1000, 80));
  std::printf("free inside: %d\n", cuMemFree(block + 512));
  cuMemFree(block);
  cuMemFree(next);
}

void again() {
  CUdeviceptr block = 0;
  cuMemAlloc(&block, 3 << 20);
  std::printf("free: %d\n", cuMemFree(block));
  std::printf("again: %d\n", cuMemFree(block));
  std::printf("set: %d\n", cuMemsetD8(block, 1, 100));
}

void graph() {
  CUdeviceptr block = 0;
  cuMemAlloc(&block, 3 << 20);
  CUstream stream = nullptr;
  cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  cuMemsetD8Async(block, 7, 3 << 20, stream);
  CUgraph graph = nullptr;
  std::printf("captured: %d\n", cuStreamEndCapture(stream, &graph));
  CUgraphExec run = nullptr;
  cuGraphInstantiate(&run, graph, 0);
  cuMemFree(block);
  std::vector<CUdeviceptr> more(20);
  for (CUdeviceptr& one : more) cuMemAlloc(&one, 10 << 20);
  for (CUdeviceptr one : more) cuMemFree(one);
  std::printf("launched: %d, %d\n", cuGraphLaunch(run, stream), cuStreamSynchronize(stream));
}

void many_sizes() {
  std::vector<CUdeviceptr> blocks;
  for (size_t bytes = 1; bytes < 100 << 20; bytes = bytes * 3 / 2 + 700) {
    CUdeviceptr block = 0;
    cuMemAlloc(&block, bytes);
    blocks.push_back(block);
  }
  for (CUdeviceptr block : blocks) cuMemFree(block);
}

}  // namespace

int main(int, char** arguments) {
  if (cudaFree(nullptr) != cudaSuccess) return 2;
  const char* const what = arguments[1];
  if (!std::strcmp(what, "share")) share();
  if (!std::strcmp(what, "look")) look();
  if (!std::strcmp(what, "beyond")) beyond();
  if (!std::strcmp(what, "again")) again();
  if (!std::strcmp(what, "graph")) graph();
  if (!std::strcmp(what, "exit")) many_sizes();
  std::puts("end");
}
