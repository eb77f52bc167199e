// Calls that fail, each with outputs and errno set before: what is left in them is the driver's own doing. Before
// cuInit, without a context, with no argument, on a full device, while a capture forbids the call, after a fault.
// harness: environment=SIMCUDA_MEMORY=67108864
// harness: simulator-only
// harness: figures=off
#include <errno.h>

#include "../driver_program.hpp"

namespace {

constexpr unsigned long long kPreset = 0xABABABABABABABAB;
constexpr int kErrno = 77;

struct Outputs {
  unsigned long long words[8];
  template <class T>
  T* at(int index) {
    return reinterpret_cast<T*>(&words[index]);
  }
};

// What a call works on that was made before.
CUdeviceptr some_block = 0;
void* some_host = nullptr;
CUmodule some_module = nullptr;
CUgraph some_graph = nullptr;

struct Call {
  const char* name;
  CUresult (*make)(Outputs& out);
};

constexpr size_t kBig = 70 << 20, kOdd = 1;
const int kImage[4] = {1};
CUDA_ARRAY_DESCRIPTOR big_array() { return {4096, 4096 * 5, CU_AD_FORMAT_FLOAT, 1}; }
CUmemAllocationProp on_device() {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = 0;
  return properties;
}

#define CALL(expression)                                                               \
  {                                                                                    \
#expression, []([[maybe_unused]] Outputs & out) -> CUresult { return expression; } \
  }
const Call kCalls[] = {
    CALL(cuMemAlloc(out.at<CUdeviceptr>(0), kBig)),
    CALL(cuMemAlloc(out.at<CUdeviceptr>(0), 0)),
    CALL(cuMemAlloc(nullptr, 10)),
    CALL(cuMemAlloc(out.at<CUdeviceptr>(0), ~size_t{0})),
    CALL(cuMemAllocPitch(out.at<CUdeviceptr>(0), out.at<size_t>(1), 4096, kBig / 4096, 4)),
    CALL(cuMemAllocPitch(out.at<CUdeviceptr>(0), out.at<size_t>(1), 4096, 1, 3)),
    CALL(cuMemAllocPitch(out.at<CUdeviceptr>(0), nullptr, 4096, 1, 4)),
    CALL(cuMemAllocPitch(out.at<CUdeviceptr>(0), out.at<size_t>(1), ~size_t{0}, 2, 4)),
    CALL(cuMemAllocHost(out.at<void*>(0), 0)),
    CALL(cuMemAllocHost(out.at<void*>(0), ~size_t{0})),
    CALL(cuMemHostAlloc(out.at<void*>(0), 10, 0x100)),
    CALL(cuMemHostAlloc(out.at<void*>(0), ~size_t{0}, 0)),
    CALL(cuMemAllocManaged(out.at<CUdeviceptr>(0), 0, CU_MEM_ATTACH_GLOBAL)),
    CALL(cuMemAllocManaged(out.at<CUdeviceptr>(0), 100, 77)),
    CALL(cuMemAllocAsync(out.at<CUdeviceptr>(0), kBig, nullptr)),
    CALL(cuMemAllocAsync(out.at<CUdeviceptr>(0), 0, nullptr)),
    CALL(cuMemAllocFromPoolAsync(out.at<CUdeviceptr>(0), kBig, nullptr, nullptr)),
    CALL([&out] {
      auto of = big_array();
      return cuArrayCreate(out.at<CUarray>(0), &of);
    }()),
    CALL(cuArrayCreate(out.at<CUarray>(0), nullptr)),
    CALL(cuArray3DCreate(out.at<CUarray>(0), nullptr)),
    CALL([&out] {
      auto of = on_device();
      return cuMemCreate(out.at<CUmemGenericAllocationHandle>(0), kBig, &of, 0);
    }()),
    CALL([&out] {
      auto of = on_device();
      return cuMemCreate(out.at<CUmemGenericAllocationHandle>(0), kOdd, &of, 0);
    }()),
    CALL(cuMemAddressReserve(out.at<CUdeviceptr>(0), kOdd, 0, 0, 0)),
    CALL(cuMemMap(some_block, kOdd, 0, 99, 0)),
    CALL(cuMemRetainAllocationHandle(out.at<CUmemGenericAllocationHandle>(0), &some_block)),
    CALL(cuMemHostRegister(nullptr, 100, 0)),
    CALL(cuMemHostUnregister(&some_block)),
    CALL(cuMemFree(kOdd)),
    CALL(cuMemFreeHost(&some_block)),
    CALL(cuMemFreeAsync(kOdd, nullptr)),
    CALL(cuMemGetAddressRange(out.at<CUdeviceptr>(0), out.at<size_t>(1), kOdd)),
    CALL(cuPointerGetAttribute(out.at<void>(0), CU_POINTER_ATTRIBUTE_MEMORY_TYPE, kOdd)),
    CALL(cuPointerGetAttribute(out.at<void>(0), CU_POINTER_ATTRIBUTE_BUFFER_ID, kOdd)),
    CALL(cuPointerGetAttribute(out.at<void>(0), static_cast<CUpointer_attribute>(99), some_block)),
    CALL(cuPointerSetAttribute(&kOdd, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, kOdd)),
    CALL(cuMemHostGetDevicePointer(out.at<CUdeviceptr>(0), &some_block, 0)),
    CALL(cuMemHostGetDevicePointer(out.at<CUdeviceptr>(0), some_host, 5)),
    CALL(cuMemHostGetFlags(out.at<unsigned>(0), &some_block)),
    CALL(cuIpcGetMemHandle(out.at<CUipcMemHandle>(0), kOdd)),
    CALL(cuDeviceTotalMem(out.at<size_t>(0), 99)),
    CALL(cuMemGetInfo(nullptr, nullptr)),
    CALL(cuModuleLoad(out.at<CUmodule>(0), nullptr)),
    CALL(cuModuleLoadData(nullptr, kImage)),
    CALL(cuModuleLoadData(out.at<CUmodule>(0), kImage)),
    CALL(cuModuleLoadDataEx(out.at<CUmodule>(0), kImage, 0, nullptr, nullptr)),
    CALL(cuModuleGetFunction(out.at<CUfunction>(0), some_module, "no such kernel")),
    CALL(cuModuleGetFunction(out.at<CUfunction>(0), nullptr, "no such kernel")),
    CALL(cuLibraryGetModule(out.at<CUmodule>(0), nullptr)),
    CALL(cuKernelGetFunction(out.at<CUfunction>(0), nullptr)),
    CALL(cuCtxSetLimit(static_cast<CUlimit>(77), 1)),
    CALL(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 1)),
    CALL(cuEventCreate(out.at<CUevent>(0), 77)),
    CALL(cuEventCreate(nullptr, 0)),
    CALL(cuStreamCreate(out.at<CUstream>(0), 77)),
    CALL(cuStreamCreateWithPriority(nullptr, 0, 0)),
    CALL(cuStreamDestroy(nullptr)),
    CALL(cuGraphInstantiateWithFlags(out.at<CUgraphExec>(0), nullptr, 0)),
    CALL(cuGraphInstantiateWithFlags(out.at<CUgraphExec>(0), some_graph, 0)),
    CALL(cuGraphInstantiateWithParams(out.at<CUgraphExec>(0), some_graph, out.at<CUDA_GRAPH_INSTANTIATE_PARAMS>(1))),
    CALL(cuGraphUpload(nullptr, nullptr)),
    CALL(cuMemPoolCreate(out.at<CUmemoryPool>(0), nullptr)),
    CALL(cuCtxCreate(out.at<CUcontext>(0), nullptr, 0, 99)),
    CALL(cuDevicePrimaryCtxRetain(out.at<CUcontext>(0), 99)),
    CALL(cuCtxDestroy(nullptr)),
    CALL(cuStreamEndCapture(nullptr, out.at<CUgraph>(0))),
    CALL(cuGetProcAddress("cuNoSuchCall", out.at<void*>(0), 12000, 0, out.at<CUdriverProcAddressQueryResult>(1))),
};
#undef CALL

// Of calls that succeed in this state nothing is said but that: what they made stays.
void make_all(const char* state) {
  for (const Call& call : kCalls) {
    Outputs out;
    for (unsigned long long& word : out.words) word = kPreset;
    out.words[1] = call.name[7] == 'I' ? 0 : kPreset;  // flags of an instantiation
    const Outputs before = out;
    errno = kErrno;
    const CUresult code = call.make(out);
    const bool errno_kept = errno == kErrno;
    if (code == CUDA_SUCCESS) {
      say("%s: %s: ok", state, call.name);
      continue;
    }
    std::string left;
    for (int i = 0; i < 8; ++i) left += out.words[i] == before.words[i] ? '-' : out.words[i] ? 'w' : '0';
    say("%s: %s: %s, outputs %s, errno %s", state, call.name, name_of(code), left.c_str(), errno_kept ? "kept" : "set");
  }
}

}  // namespace

int main() {
  make_all("before cuInit");
  const CUdevice device = first_device();
  make_all("without a context");
  CUcontext context = nullptr;
  NEED(cuDevicePrimaryCtxRetain(&context, device));
  NEED(cuCtxSetCurrent(context));
  NEED(cuModuleLoadData(&some_module, kImage));
  NEED(cuGraphCreate(&some_graph, 0));
  some_block = device_block(1 << 20);
  NEED(cuMemAllocHost(&some_host, 3000));
  ++made.pinned;
  make_all("with a context");
  simcuda_set_value("overhead", 1 << 20);
  CUdeviceptr rest = 0;
  for (size_t bytes = 64 << 20; bytes >= 512; bytes /= 2)
    while (cuMemAlloc(&rest, bytes) == CUDA_SUCCESS) {
    }
  make_all("on a full device");
  CUstream stream = nullptr;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  make_all("while a stream captures");
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(stream, &graph));
  simcuda_set_value("fail_every", 1);
  simcuda_set_value("fail_code", CUDA_ERROR_ILLEGAL_ADDRESS);
  make_all("after a fault");
  simcuda_set_value("fail_every", 0);
  return finish();
}
