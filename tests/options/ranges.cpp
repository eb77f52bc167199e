// A program that shows what it sees of device memory that is cut from a range. It does what its argument says:
//   share    asks for handles for other processes of two blocks from one call site, and of one from another
//   look     asks where a block begins and how large it is, from its middle
//   beyond   sets and copies more than a block has, and what lies behind it
//   again    frees a block twice, and uses it after that
//   graph    captures a kernel on a block, frees it, and has others after it
//   exit     allocates and frees blocks of many sizes
//   second   begins to use a second device, while access to mapped memory fails
//   refused  allocates while access to mapped memory fails for good
//   contexts makes and destroys many contexts, with a block in each
//   green    allocates in a green context, which ends before the memory does
//   attached allocates in a context that is detached once, and then destroyed
//   held     retains and releases the primary context beside a copy that takes long
//   asked    asks about a block in a host function, and after a fault
//   captured frees blocks while a stream captures, and has more than fits beside them
//   full     fills the device, frees blocks while a stream captures, and has more than fits into one of them
//   marked   frees blocks that others may know by their addresses, while work may still use them
//   huge     asks for more than there is left
//   count    asks for the free memory, among many blocks
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "tests/simcuda/simcuda.h"

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

long long calls_of(const char* name) { return simcuda_value((std::string("calls:") + name).c_str()); }

size_t free_bytes() {
  size_t free = 0, total = 0;
  cuMemGetInfo(&free, &total);
  return free;
}

// The driver has given so much for ranges. Its free memory is no measure: Cistern adds the memory that it keeps.
long long mapped_mib() { return simcuda_value("created_bytes") >> 20; }

void second() {
  std::vector<CUdeviceptr> blocks(5);
  for (CUdeviceptr& block : blocks) cuMemAlloc(&block, 10 << 20);
  simcuda_set_value("fail_every:cuMemSetAccess", 2);
  std::printf("second device: %d\n", cudaSetDevice(1) || cudaFree(nullptr));
  CUdeviceptr there = 0, here = 0;
  std::printf("there: %d\n", cuMemAlloc(&there, 10 << 20));
  std::printf("first device: %d\n", cudaSetDevice(0));
  for (CUdeviceptr block : blocks) std::printf("set: %d\n", cuMemsetD8(block, 1, 10 << 20));
  std::printf("here: %d\n", cuMemAlloc(&here, 10 << 20));
  std::printf("copied: %d\n", cuMemcpy(here, there, 10 << 20));
  for (CUdeviceptr block : blocks) std::printf("free: %d\n", cuMemFree(block));
  std::printf("free: %d %d\n", cuMemFree(here), cuMemFree(there));
}

void refused() {
  CUdeviceptr first = 0;
  cuMemAlloc(&first, kBytes);
  cuMemFree(first);
  simcuda_set_value("fail_every:cuMemSetAccess", 1);
  std::vector<CUdeviceptr> blocks(8);
  for (CUdeviceptr& block : blocks) std::printf("allocated: %d\n", cuMemAlloc(&block, 40 << 20));
  std::printf("asked for access: %lld\n", calls_of("cuMemSetAccess"));
  for (CUdeviceptr block : blocks) std::printf("free: %d\n", cuMemFree(block));
}

void contexts() {
  for (int i = 0; i < 50; ++i) {
    CUcontext context = nullptr;
    cuCtxCreate(&context, nullptr, 0, 0);
    CUdeviceptr block = 0;
    const int allocated = cuMemAlloc(&block, 3 << 20), set = cuMemsetD8(block, 1, 3 << 20);
    const int destroyed = cuCtxDestroy(context);
    if (allocated || set || destroyed) std::printf("context %d: %d, %d, %d\n", i, allocated, set, destroyed);
  }
  std::printf("reserved: %lld\n", calls_of("cuMemAddressReserve"));
}

// The block outlives the green context, and so does the primary context's own.
void green() {
  CUdeviceptr own = 0;
  cuMemAlloc(&own, kBytes);
  CUdevResource all{};
  CUdevResourceDesc description = nullptr;
  cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM);
  cuDevResourceGenerateDesc(&description, &all, 1);
  const size_t before = free_bytes();
  for (int i = 0; i < 3; ++i) {
    CUgreenCtx green = nullptr;
    CUcontext part = nullptr;
    CUdeviceptr block = 0, kept = 0;
    std::printf("green: %d\n", cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    std::printf("part: %d\n", cuCtxFromGreenCtx(&part, green));
    cuCtxPushCurrent(part);
    std::printf("allocated: %d\n", cuMemAlloc(&block, 20 << 20));
    cuMemAlloc(&kept, 30 << 20);
    cuMemFree(kept);
    cuCtxPopCurrent(&part);
    std::printf("destroyed: %d\n", cuGreenCtxDestroy(green));
    std::printf("set: %d\n", cuMemsetD8(block, 1, 20 << 20));
    std::printf("held: %zu MiB\n", (before - free_bytes()) >> 20);
    std::printf("free: %d\n", cuMemFree(block));
    std::printf("held: %zu MiB\n", (before - free_bytes()) >> 20);
  }
  std::printf("set: %d\n", cuMemsetD8(own, 1, kBytes));
  std::printf("free: %d\n", cuMemFree(own));
}

void attached() {
  CUcontext context = nullptr, same = nullptr;
  cuCtxCreate(&context, nullptr, 0, 0);
  CUdeviceptr block = 0;
  cuMemAlloc(&block, 3 << 20);
  std::printf("attached: %d\n", cuCtxAttach(&same, 0));
  std::printf("detached: %d\n", cuCtxDetach(context));
  std::printf("set: %d\n", cuMemsetD8(block, 1, 3 << 20));
  std::printf("free: %d\n", cuMemFree(block));
  std::printf("detached: %d\n", cuCtxDetach(context));
  std::printf("set: %d\n", cuMemsetD8(block, 1, 3 << 20));
}

double seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

void held() {
  CUdeviceptr block = 0;
  cuMemAlloc(&block, 64 << 20);
  simcuda_set_value("link_to_host_mbps", 64);
  std::atomic<bool> begun{false}, done{false};
  std::thread copies([&] {
    cudaSetDevice(0);
    std::vector<char> host(64 << 20);
    begun = true;
    std::printf("copy: %d\n", cuMemcpyDtoH(host.data(), block, host.size()));
    done = true;
  });
  while (!begun) usleep(1000);
  usleep(100'000);
  const double from = seconds();
  CUcontext context = nullptr;
  const int retained = cuDevicePrimaryCtxRetain(&context, 0), released = cuDevicePrimaryCtxRelease(0);
  const double took = seconds() - from;
  const bool beside = !done;
  copies.join();
  std::printf("primary context: %d, %d\n", retained, released);
  std::printf("%s, %s\n", beside ? "beside the copy" : "after the copy", took < 0.3 ? "no wait" : "a wait");
  cuMemFree(block);
}

void ask(CUdeviceptr block) {
  for (const CUpointer_attribute attribute :
       {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_BUFFER_ID,
        CU_POINTER_ATTRIBUTE_MAPPING_SIZE, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR}) {
    unsigned long long value = 0;
    std::printf("attribute %d: %d\n", attribute, cuPointerGetAttribute(&value, attribute, block));
  }
  CUpointer_attribute two[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  unsigned long long context = 0, bytes = 0;
  void* values[] = {&context, &bytes};
  std::printf("attributes: %d\n", cuPointerGetAttributes(2, two, values, block));
  CUdeviceptr base = 0;
  std::printf("range: %d\n", cuMemGetAddressRange(&base, nullptr, block));
}

void nothing(void**) {}

void asked() {
  static CUdeviceptr block = 0;
  cuMemAlloc(&block, kBytes);
  ask(block);
  cuLaunchHostFunc(
      nullptr, [](void*) { ask(block); }, nullptr);
  cuCtxSynchronize();
  simcuda_set_value("fault", 1);
  static const char stub = 0;
  simcuda_define("nothing", &stub, nothing, 0, nullptr);
  cudaLaunchKernel(&stub, dim3(1), dim3(1), nullptr, 0, nullptr);
  std::printf("fault: %d\n", cuCtxSynchronize());
  ask(block);
}

void captured() {
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  std::vector<CUdeviceptr> blocks(7);
  for (CUdeviceptr& block : blocks) cuMemAlloc(&block, 100 << 20);
  cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  for (CUdeviceptr block : blocks) cuMemFree(block);
  CUdeviceptr large = 0;
  std::printf("large: %d\n", cuMemAlloc(&large, 800 << 20));
  std::printf("captured: %d\n", cuStreamEndCapture(stream, &graph));
  std::printf("free: %d\n", cuMemFree(large));
  for (CUdeviceptr& block : blocks) cuMemAlloc(&block, 100 << 20);
  cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  for (CUdeviceptr block : blocks) cuMemFree(block);
  std::printf("captured: %d\n", cuStreamEndCapture(stream, &graph));
  std::printf("waited: %d\n", cuCtxSynchronize());
  std::printf("kept: %s\n", mapped_mib() < 24 ? "little" : "much");
}

void full() {
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  std::vector<CUdeviceptr> blocks(free_bytes() >> 21);
  for (CUdeviceptr& block : blocks) cuMemAlloc(&block, 2 << 20);
  std::printf("left: %zu\n", free_bytes());
  cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  for (int i = 0; i < 10; ++i) cuMemFree(blocks[static_cast<size_t>(2 * i)]);
  CUdeviceptr large = 0;
  std::printf("large: %d\n", cuMemAlloc(&large, 4 << 20));
  std::printf("captured: %d\n", cuStreamEndCapture(stream, &graph));
  std::printf("large: %d\n", cuMemAlloc(&large, 4 << 20));
}

int exported(CUdeviceptr block, size_t bytes) {
  int descriptor = -1;
  const int code = cuMemGetHandleForAddressRange(&descriptor, block, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  close(descriptor);
  return code;
}

// Another process knows `known` and `on_stream`, a graph knows `captured`, and only the program knows `plain`.
void marked() {
  constexpr size_t kEach = 10 << 20;
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  const auto mapped = [&] {
    free_bytes();  // it settles what has ended
    return mapped_mib();
  };
  CUdeviceptr plain = 0, known = 0, on_stream = 0;
  for (CUdeviceptr* block : {&plain, &known, &on_stream}) cuMemAlloc(block, kEach);
  std::printf("exported: %d, %d\n", exported(known, kEach), exported(on_stream, kEach));
  cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  using Allocate = void*(ssize_t, int, void*);
  using Free = void(void*, ssize_t, int, void*);
  auto* const allocate = reinterpret_cast<Allocate*>(dlsym(RTLD_DEFAULT, "cistern_torch_alloc"));
  auto* const free = reinterpret_cast<Free*>(dlsym(RTLD_DEFAULT, "cistern_torch_free"));
  void* const captured = allocate(kEach, 0, stream);
  std::printf("in the graph: %d\n", cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(captured), 1, kEach, stream));
  std::printf("mapped: %lld MiB\n", mapped());
  std::printf("free: %d, %d\n", cuMemFree(plain), cuMemFree(known));
  free(captured, kEach, 0, stream);
  std::printf("while it captures: %lld MiB\n", mapped());
  std::printf("captured: %d\n", cuStreamEndCapture(stream, &graph));
  std::printf("after it: %lld MiB\n", mapped());
  simcuda_set_value("stream_delay_us", 200'000);
  std::printf("set: %d\n", cuMemsetD8Async(on_stream, 1, kEach, stream));
  std::printf("free: %d\n", cuMemFreeAsync(on_stream, stream));
  std::printf("while it is set: %lld MiB\n", mapped());
  cuStreamSynchronize(stream);
  std::printf("after it: %lld MiB\n", mapped());
  CUdeviceptr next = 0;
  cuMemAlloc(&next, kEach);
  std::printf("the next block lies where the first one lay: %s\n", next == plain ? "yes" : "no");
  cuMemFree(next);
}

void huge() {
  std::vector<CUdeviceptr> blocks(100);
  for (CUdeviceptr& block : blocks) cuMemAlloc(&block, 1 << 20);
  const long long creates = calls_of("cuMemCreate");
  CUdeviceptr block = 0;
  const size_t there = free_bytes();
  std::printf("huge: %d\n", cuMemAlloc(&block, there + (1 << 20)));
  std::printf("pieces: %lld\n", calls_of("cuMemCreate") - creates);
  std::printf("most of what there is: %d\n", cuMemAlloc(&block, there / 8 * 7));
}

void count() {
  std::vector<CUdeviceptr> blocks(100'000);
  for (CUdeviceptr& block : blocks) cuMemAlloc(&block, 4096);
  timespec from{}, to{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
  for (int i = 0; i < 100; ++i) free_bytes();
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
  std::printf("microseconds: %ld\n", ((to.tv_sec - from.tv_sec) * 1'000'000'000 + to.tv_nsec - from.tv_nsec) / 100'000);
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
  if (!std::strcmp(what, "second")) second();
  if (!std::strcmp(what, "refused")) refused();
  if (!std::strcmp(what, "contexts")) contexts();
  if (!std::strcmp(what, "green")) green();
  if (!std::strcmp(what, "attached")) attached();
  if (!std::strcmp(what, "held")) held();
  if (!std::strcmp(what, "asked")) asked();
  if (!std::strcmp(what, "captured")) captured();
  if (!std::strcmp(what, "full")) full();
  if (!std::strcmp(what, "marked")) marked();
  if (!std::strcmp(what, "huge")) huge();
  if (!std::strcmp(what, "count")) count();
  std::puts("end");
}
