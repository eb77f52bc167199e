// A walk over all CUDA interfaces that goes on whatever fails: for fail_nth.py, which makes one driver call of it fail.
// Every answer must be success or what was injected; after a failure the last error is that answer, once, and the call
// succeeds when it is made again; after a success there is no last error. In the end everything is given back.
// Prints what failed, what is wrong, and how many driver calls there were.
#include <dlfcn.h>

#include <algorithm>
#include <initializer_list>

#include <cistern/cistern.h>
#include "program.hpp"

static int wrong = 0, failures = 0;

static void complain(const char* what, const char* name, const std::string& detail = "") {
  ++wrong;
  say("wrong: %s: %s%s", what, name, detail.c_str());
}

static bool injected(cudaError_t code) {
  return code == cudaErrorMemoryAllocation || code == cudaErrorUnknown || code == cudaErrorInitializationError ||
         code == cudaErrorNoDevice;
}

// The answer is success; or an injected failure, and then the last error holds it once.
static bool judge(const char* name, cudaError_t code) {
  const cudaError_t last = cudaPeekAtLastError();
  if (code == cudaSuccess) {
    if (last != cudaSuccess) complain("an error is left behind by", name, std::string(": ") + name_of(last));
    (void)cudaGetLastError();
    return true;
  }
  ++failures;
  say("failed: %s: %s", name, name_of(code));
  if (!injected(code)) complain("not what was injected", name);
  if (last != code) complain("the last error is another", name, std::string(": ") + name_of(last));
  (void)cudaGetLastError();
  if (cudaPeekAtLastError() != cudaSuccess) complain("the last error stays", name);
  return false;
}

// Once more after a failure: only one driver call fails.
#define DO(call) (judge(#call, call) || (judge(#call ", again", call) || (complain("fails again", #call), false)))
// Where a second call would mean something else.
#define TRY(call) judge(#call, call)

constexpr size_t kWords = 2048, kBytes = kWords * 4;

static void expect(const char* what, const unsigned* words, unsigned value) {
  for (size_t i = 0; i < kWords; ++i) {
    if (words[i] == value) continue;
    complain("contents", what, ": " + std::to_string(words[i]) + " for " + std::to_string(value));
    return;
  }
}

static void device_memory() {
  for (int round = 0; round < 3; ++round) {
    void *block = nullptr, *other = nullptr;
    std::vector<unsigned> words(kWords);
    DO(cudaMalloc(&block, kBytes));
    DO(cudaMalloc(&other, kBytes));
    DO(cudaMemset(block, 0x01, kBytes));
    DO(launch(nullptr, kWords, Add{static_cast<unsigned*>(block), 1}));
    DO(cudaMemcpy(other, block, kBytes, cudaMemcpyDeviceToDevice));
    DO(cudaFree(block));
    DO(cudaMemcpy(words.data(), other, kBytes, cudaMemcpyDeviceToHost));
    expect("device memory", words.data(), 0x01010102);
    DO(cudaFree(other));
  }
  void* pitched = nullptr;
  size_t pitch = 0;
  DO(cudaMallocPitch(&pitched, &pitch, 100, 10));
  DO(cudaFree(pitched));
}

static void pinned_memory() {
  for (int round = 0; round < 3; ++round) {
    void *small = nullptr, *large = nullptr, *block = nullptr;
    DO(cudaMallocHost(&small, 1000));
    DO(cudaHostAlloc(&large, kBytes, cudaHostAllocMapped));
    DO(cudaMalloc(&block, kBytes));
    unsigned flags = 0;
    void* on_device = nullptr;
    DO(cudaHostGetFlags(&flags, large));
    DO(cudaHostGetDevicePointer(&on_device, large, 0));
    unsigned* words = static_cast<unsigned*>(large);
    std::fill_n(words, kWords, 5u);
    DO(cudaMemcpyAsync(block, large, kBytes, cudaMemcpyHostToDevice, nullptr));
    DO(cudaStreamSynchronize(nullptr));
    std::fill_n(words, kWords, 0u);
    DO(cudaMemcpy(large, block, kBytes, cudaMemcpyDeviceToHost));
    expect("pinned memory", words, 5);
    DO(cudaFreeHost(small));
    DO(cudaFreeHost(large));
    DO(cudaFree(block));
  }
}

// Copies that may go through pinned chunks, several each. A call that failed may have copied a part.
static void pageable_copies(cudaStream_t stream) {
  constexpr size_t kMany = 300 * 1000, kManyBytes = kMany * 4, kRow = 1000 * 4;
  void *block = nullptr, *pitched = nullptr;
  size_t pitch = 0;
  std::vector<unsigned> there(kMany), back(kMany);
  const auto arrived = [&](const char* what, unsigned value) {
    if (std::vector<unsigned>(kMany, value) != back) complain("contents", what, ": " + describe(back));
    std::fill(back.begin(), back.end(), 0u);
  };
  DO(cudaMalloc(&block, kManyBytes));
  DO(cudaMallocPitch(&pitched, &pitch, kRow, kManyBytes / kRow));
  std::fill(there.begin(), there.end(), 11u);
  DO(cudaMemcpy(block, there.data(), kManyBytes, cudaMemcpyHostToDevice));
  std::fill(there.begin(), there.end(), 12u);
  DO(cudaMemcpy(back.data(), block, kManyBytes, cudaMemcpyDeviceToHost));
  arrived("pageable copies", 11);
  DO(cudaMemcpyAsync(block, there.data(), kManyBytes, cudaMemcpyHostToDevice, stream));
  std::fill(there.begin(), there.end(), 13u);
  DO(cudaMemcpyAsync(back.data(), block, kManyBytes, cudaMemcpyDeviceToHost, stream));
  arrived("asynchronous pageable copies", 12);
  DO(cudaMemcpy2DAsync(pitched, pitch, there.data(), kRow, kRow, kManyBytes / kRow, cudaMemcpyHostToDevice, stream));
  std::fill(there.begin(), there.end(), 14u);
  DO(cudaMemcpy2DAsync(back.data(), kRow, pitched, pitch, kRow, kManyBytes / kRow, cudaMemcpyDeviceToHost, stream));
  arrived("pageable rows", 13);
  DO(cudaFree(block));
  DO(cudaFree(pitched));
}

static void other_memory(cudaStream_t stream) {
  void *managed = nullptr, *ordered = nullptr, *heap = aligned_alloc(4096, 8192);
  DO(cudaMallocManaged(&managed, kBytes, cudaMemAttachGlobal));
  DO(cudaMallocAsync(&ordered, kBytes, stream));
  DO(cudaMemsetAsync(ordered, 0, kBytes, stream));
  DO(cudaFreeAsync(ordered, stream));
  void* plain = nullptr;
  DO(cudaMalloc(&plain, kBytes));
  DO(cudaFreeAsync(plain, stream));
  DO(cudaStreamSynchronize(stream));
  DO(cudaHostRegister(heap, 8192, cudaHostRegisterDefault));
  DO(cudaHostUnregister(heap));
  DO(cudaFree(managed));
  const cudaChannelFormatDesc channel{32, 0, 0, 0, cudaChannelFormatKindUnsigned};
  cudaArray_t array = nullptr;
  DO(cudaMallocArray(&array, &channel, 16, 16));
  DO(cudaFreeArray(array));
  free(heap);
}

static void queries() {
  void* block = nullptr;
  DO(cudaMalloc(&block, kBytes));
  size_t available = 0, total = 0;
  DO(cudaMemGetInfo(&available, &total));
  cudaPointerAttributes attributes{};
  DO(cudaPointerGetAttributes(&attributes, block));
  cudaIpcMemHandle_t handle{};  // the driver refuses memory of a range
  if (!in_ranges()) DO(cudaIpcGetMemHandle(&handle, block));
  DO(cudaFree(block));
  DO(cudaMalloc(&block, kBytes));
  DO(cudaFree(block));
}

static void events(cudaStream_t stream) {
  cudaEvent_t event = nullptr;
  DO(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  DO(cudaEventRecord(event, stream));
  DO(cudaStreamWaitEvent(nullptr, event, 0));
  DO(cudaEventSynchronize(event));
  DO(cudaEventQuery(event));
  DO(cudaEventDestroy(event));
}

// A call that fails may spoil the capture: then the end of it gives that answer, and there is no graph.
static void captured(cudaStream_t stream) {
  void *block = nullptr, *inside = nullptr;
  DO(cudaMalloc(&block, kBytes));
  const int failures_before = failures;
  bool whole = DO(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  whole = whole && TRY(launch(stream, kWords, Fill{static_cast<unsigned*>(block), 7}));
  if (TRY(cudaMalloc(&inside, kBytes))) DO(cudaFree(inside));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t run = nullptr;
  cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  if (injected(ended) && !judge("cudaStreamEndCapture", ended)) ended = cudaStreamEndCapture(stream, &graph);
  (void)cudaGetLastError();
  if (ended != cudaSuccess && failures == failures_before) complain("the capture is spoiled", name_of(ended));
  if (graph) {
    if (DO(cudaGraphInstantiate(&run, graph, 0))) {
      DO(cudaGraphLaunch(run, stream));
      DO(cudaStreamSynchronize(stream));
      std::vector<unsigned> words(kWords);
      DO(cudaMemcpy(words.data(), block, kBytes, cudaMemcpyDeviceToHost));
      if (whole) expect("after the graph", words.data(), 7);
      DO(cudaGraphExecDestroy(run));
    }
    DO(cudaGraphDestroy(graph));
  }
  DO(cudaFree(block));
}

static void second_device() {
  int devices = 0;
  if (!DO(cudaGetDeviceCount(&devices)) || devices < 2) return;
  void *here = nullptr, *there = nullptr;
  DO(cudaMalloc(&here, kBytes));
  DO(cudaSetDevice(1));
  DO(cudaMalloc(&there, kBytes));
  DO(cudaMemset(there, 0, kBytes));
  DO(cudaMemcpyPeer(here, 0, there, 1, kBytes));
  DO(cudaFree(here));
  DO(cudaFree(there));
  DO(cudaDeviceSynchronize());
  DO(cudaSetDevice(0));
}

// What the pools keep is no leak; after a trim the driver has nothing left.
static void trim_pools() {
  auto trim = reinterpret_cast<decltype(&cistern_trim)>(dlsym(RTLD_DEFAULT, "cistern_trim"));
  if (!trim) return;
  for (cistern_kind kind : {CISTERN_DEVICE, CISTERN_PINNED}) trim(kind, 0, nullptr);
}

int main() {
  // Set-up of the runtime may fail at once or in any first call; it starts again at the next.
  DO(cudaFree(nullptr));
  DO(cudaSetDevice(0));
  cudaStream_t stream = nullptr;
  DO(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  device_memory();
  pinned_memory();
  pageable_copies(stream);
  other_memory(stream);
  queries();
  events(stream);
  captured(stream);
  second_device();
  DO(cudaStreamDestroy(stream));
  DO(cudaDeviceSynchronize());
  cudaMemPool_t pool = nullptr;
  DO(cudaDeviceGetDefaultMemPool(&pool, 0));
  DO(cudaMemPoolTrimTo(pool, 0));
  const long long calls = simcuda_value("calls");
  simcuda_set_value("fail_at", 0);
  trim_pools();
  for (const char* what : {"live_allocations", "live_pinned", "live_streams", "live_events", "created_bytes"}) {
    if (const long long count = simcuda_value(what); count > 0) say("left over: %s %lld", what, count);
  }
  say("%lld calls, %d failures, %d wrong", calls, failures, wrong);
  return wrong ? 1 : 0;
}
