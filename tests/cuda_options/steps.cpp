// A CUDA program that does what its arguments say, and prints each step with its answer:
//   NAME=KIND:BYTES  allocates (device, pitched, pinned, async, managed, array, vmm); BYTES may end
//                    in K or M, and are multiples of 4 KiB where there are rows
//   free=NAME        frees it
//   churn=KIND:BYTES:COUNT  allocates COUNT blocks, then frees them all
//   device=N         the current device from now on
//   info             what cudaMemGetInfo and cuDeviceTotalMem say, in KiB
//   driver           what the simulated driver counts; "driver=COUNTER": one of its counters
//   work=NAME        something for the device to do with a block, not waited for
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
int create_physical(void** pointer, size_t bytes) {
  int device = 0;
  cudaGetDevice(&device);
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  CUmemGenericAllocationHandle handle = 0;
  const int code = cuMemCreate(&handle, bytes, &properties, 0);
  *pointer = reinterpret_cast<void*>(handle);
  return code;
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

int allocate(const std::string& kind, size_t bytes, void** pointer) {
  if (kind == "device") return cudaMalloc(pointer, bytes);
  if (kind == "pinned") return cudaMallocHost(pointer, bytes);
  if (kind == "managed") return cudaMallocManaged(pointer, bytes, cudaMemAttachGlobal);
  if (kind == "async") return cudaMallocAsync(pointer, bytes, nullptr);
  if (kind == "pitched") return allocate_pitched(pointer, bytes);
  if (kind == "array") return allocate_array(pointer, bytes);
  if (kind == "vmm") return create_physical(pointer, bytes);
  std::exit(2);
}

int release(const Block& block) {
  if (block.kind == "pinned") return cudaFreeHost(block.pointer);
  if (block.kind == "async") return cudaFreeAsync(block.pointer, nullptr);
  if (block.kind == "array") return cudaFreeArray(static_cast<cudaArray_t>(block.pointer));
  if (block.kind == "vmm") return cuMemRelease(reinterpret_cast<CUmemGenericAllocationHandle>(block.pointer));
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
  } else if (name == "device") {
    code = cudaSetDevice(std::atoi(value.c_str()));
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
    code = allocate(block.kind, bytes_of(value.substr(colon + 1)), &block.pointer);
    if (!code) blocks[name] = block;
  }
  std::printf("%s: %d\n", step.c_str(), code);
}

}  // namespace

int main(int argc, char** argv) {
  cudaFree(nullptr);
  for (int i = 1; i < argc; ++i) do_step(argv[i]);
}
