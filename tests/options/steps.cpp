// A CUDA program that does what its arguments say, and prints each step with its answer:
//   NAME=KIND:BYTES  allocates (device, pitched, pinned, async, managed, array, vmm; vmm1 and node1,
//                    physical memory and a graph's node, of device 1 whichever is current); BYTES may end in K or M,
//                    and are multiples of 4 KiB where there are rows
//   NAME=KIND        makes what takes memory besides (module, library, graph, limit)
//   free=NAME        frees it
//   churn=KIND:BYTES:COUNT  allocates COUNT blocks, then frees them all
//   device=N         the current device from now on
//   info             what cudaMemGetInfo and cuDeviceTotalMem say, in KiB
//   driver           what the simulated driver counts; "driver=COUNTER": one of its counters
//   capture=MODE     a stream captures from now on (global, local, relaxed)
//   relaxed          changes the thread's capture mode to relaxed; once more: back
//   captured         ends the capture
//   work=NAME        something for the device to do with a block, not waited for
//   copy=BYTES       from pageable memory to the device
//   sleep            250 ms
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "tests/simcuda/simcuda.h"

namespace {

struct Block {
  std::string kind;
  void* pointer = nullptr;
};
std::map<std::string, Block> blocks;

size_t bytes_of(const std::string& text) {
  char* unit = nullptr;
  const size_t number = std::strtoull(text.c_str(), &unit, 0);
  return *unit == 'M' ? number << 20 : *unit == 'K' ? number << 10 : number;
}

// The runtime's and the driver's codes have the same numbers.
int create_physical(void** pointer, size_t bytes, int device) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  CUmemGenericAllocationHandle handle = 0;
  const int code = cuMemCreate(&handle, bytes, &properties, 0);
  *pointer = reinterpret_cast<void*>(handle);
  return code;
}

int add_node(void** pointer, size_t bytes, int device) {
  static CUgraph graph = nullptr;
  if (!graph) cuGraphCreate(&graph, 0);
  CUDA_MEM_ALLOC_NODE_PARAMS wanted{};
  wanted.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  wanted.bytesize = bytes;
  CUgraphNode node = nullptr;
  const int code = cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &wanted);
  *pointer = reinterpret_cast<void*>(wanted.dptr);
  return code;
}

int current_device() {
  int device = 0;
  cudaGetDevice(&device);
  return device;
}

constexpr size_t kRowBytes = 4096;

int allocate_pitched(void** pointer, size_t bytes) {
  size_t pitch = 0;
  return cudaMallocPitch(pointer, &pitch, kRowBytes, bytes / kRowBytes);
}
int allocate_array(void** pointer, size_t bytes) {
  const cudaChannelFormatDesc words{32, 0, 0, 0, cudaChannelFormatKindUnsigned};
  return cudaMallocArray(reinterpret_cast<cudaArray_t*>(pointer), &words, kRowBytes / 4, bytes / kRowBytes);
}

int make_graph(void** pointer) {
  CUgraph graph = nullptr;
  if (const int code = cuGraphCreate(&graph, 0)) return code;
  CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {};
  const int code = cuGraphInstantiateWithParams(reinterpret_cast<CUgraphExec*>(pointer), graph, &parameters);
  cuGraphDestroy(graph);
  return code;
}

int make(const std::string& kind, void** pointer) {
  static const int image[4] = {1};
  if (kind == "module") return cuModuleLoadData(reinterpret_cast<CUmodule*>(pointer), image);
  if (kind == "library")
    return cuLibraryLoadData(reinterpret_cast<CUlibrary*>(pointer), image, nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (kind == "graph") return make_graph(pointer);
  if (kind == "limit") return cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 1 << 20);
  std::exit(2);
}

int allocate(const std::string& kind, size_t bytes, void** pointer) {
  if (kind == "device") return cudaMalloc(pointer, bytes);
  if (kind == "pinned") return cudaMallocHost(pointer, bytes);
  if (kind == "managed") return cudaMallocManaged(pointer, bytes, cudaMemAttachGlobal);
  if (kind == "async") return cudaMallocAsync(pointer, bytes, nullptr);
  if (kind == "pitched") return allocate_pitched(pointer, bytes);
  if (kind == "array") return allocate_array(pointer, bytes);
  if (kind == "vmm") return create_physical(pointer, bytes, current_device());
  if (kind == "vmm1") return create_physical(pointer, bytes, 1);
  if (kind == "node1") return add_node(pointer, bytes, 1);
  return make(kind, pointer);
}

int release(const Block& block) {
  if (block.kind == "module") return cuModuleUnload(static_cast<CUmodule>(block.pointer));
  if (block.kind == "library") return cuLibraryUnload(static_cast<CUlibrary>(block.pointer));
  if (block.kind == "graph") return cuGraphExecDestroy(static_cast<CUgraphExec>(block.pointer));
  if (block.kind == "limit") return 0;

  if (block.kind == "pinned") return cudaFreeHost(block.pointer);
  if (block.kind == "async") return cudaFreeAsync(block.pointer, nullptr);
  if (block.kind == "array") return cudaFreeArray(static_cast<cudaArray_t>(block.pointer));
  if (block.kind.starts_with("vmm")) return cuMemRelease(reinterpret_cast<CUmemGenericAllocationHandle>(block.pointer));
  return cudaFree(block.pointer);
}

int churn(const std::string& kind, size_t bytes, int count) {
  std::vector<Block> made;
  for (int i = 0; i < count; ++i) {
    made.push_back({kind});
    if (const int code = allocate(kind, bytes, &made.back().pointer)) return code;
  }
  for (const Block& block : made)
    if (const int code = release(block)) return code;
  return 0;
}

int copy(size_t bytes) {
  const std::vector<char> source(bytes, 1);
  void* target = nullptr;
  if (const int code = cudaMalloc(&target, bytes)) return code;
  const int code = cudaMemcpy(target, source.data(), bytes, cudaMemcpyHostToDevice);
  return code ? code : cudaFree(target);
}

cudaStream_t capturing() {
  static cudaStream_t stream = nullptr;
  if (!stream) cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  return stream;
}

int begin_capture(const std::string& mode) {
  return cudaStreamBeginCapture(capturing(), mode == "global"  ? cudaStreamCaptureModeGlobal
                                             : mode == "local" ? cudaStreamCaptureModeThreadLocal
                                                               : cudaStreamCaptureModeRelaxed);
}

int end_capture() {
  cudaGraph_t graph = nullptr;
  const int code = cudaStreamEndCapture(capturing(), &graph);
  if (graph) cudaGraphDestroy(graph);
  return code;
}

int exchange_mode() {
  static cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  return cudaThreadExchangeStreamCaptureMode(&mode);
}

void print_info() {
  size_t free_bytes = 0, total_bytes = 0, device_bytes = 0;
  int device = 0;
  cudaGetDevice(&device);
  cudaMemGetInfo(&free_bytes, &total_bytes);
  cuDeviceTotalMem(&device_bytes, device);
  std::printf("info: free %zu of %zu, device %zu\n", free_bytes >> 10, total_bytes >> 10, device_bytes >> 10);
}

void print_driver() {
  std::printf("driver: allocs %lld, frees %lld, live %lld KiB; pinned allocs %lld, frees %lld, live %lld; waits %lld\n",
              simcuda_value("allocs"), simcuda_value("frees"), simcuda_value("live_bytes") >> 10,
              simcuda_value("pinned_allocs"), simcuda_value("pinned_frees"), simcuda_value("live_pinned"),
              simcuda_value("calls:cuCtxSynchronize"));
}

void do_step(const std::string& step) {
  const size_t equals = step.find('=');
  const std::string name = step.substr(0, equals), value = equals == step.npos ? "" : step.substr(equals + 1);
  const size_t colon = value.find(':');
  int code = 0;
  if (step == "info") return print_info();
  if (step == "driver") return print_driver();
  if (name == "driver") {
    std::printf("%s: %lld\n", step.c_str(), simcuda_value(value.c_str()));
    return;
  }
  if (step == "sleep") {
    usleep(250'000);
  } else if (name == "capture") {
    code = begin_capture(value);
  } else if (step == "captured") {
    code = end_capture();
  } else if (step == "relaxed") {
    code = exchange_mode();
  } else if (name == "device") {
    code = cudaSetDevice(std::atoi(value.c_str()));
  } else if (name == "copy") {
    code = copy(bytes_of(value));
  } else if (name == "work") {
    code = cudaMemsetAsync(blocks[value].pointer, 1, 1, nullptr);
  } else if (name == "free") {
    code = release(blocks[value]);
    blocks.erase(value);
  } else if (name == "churn") {
    const size_t last = value.rfind(':');
    code = churn(value.substr(0, colon), bytes_of(value.substr(colon + 1, last - colon - 1)),
                 std::atoi(value.c_str() + last + 1));
  } else {
    Block block{value.substr(0, colon)};
    code = allocate(block.kind, colon == value.npos ? 0 : bytes_of(value.substr(colon + 1)), &block.pointer);
    if (!code) blocks[name] = block;
  }
  std::printf("%s: %d\n", step.c_str(), code);
}

}  // namespace

int main(int argc, char** argv) {
  cudaFree(nullptr);
  for (int i = 1; i < argc; ++i) do_step(argv[i]);
}
