// Threads that allocate and free device memory, pinned memory and managed memory, copy from pageable memory, and
// register memory of the host, all by CUDA's driver.
// usage: device ROUNDS
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

void must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: error %d\n", what, static_cast<int>(result));
  std::abort();
}

void work(CUcontext context, int rounds) {
  must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  std::vector<CUdeviceptr> blocks;
  for (int round = 0; round < rounds; ++round) {
    const std::size_t bytes = std::size_t{4096} << round % 10;
    CUdeviceptr block = 0, managed = 0;
    must(cuMemAlloc(&block, bytes), "cuMemAlloc");
    std::vector<unsigned char> contents(bytes, static_cast<unsigned char>(round)), back(bytes);
    must(cuMemcpyHtoD(block, contents.data(), bytes), "cuMemcpyHtoD");
    must(cuMemcpyDtoH(back.data(), block, bytes), "cuMemcpyDtoH");
    if (back != contents) must(CUDA_ERROR_UNKNOWN, "a copy");
    blocks.push_back(block);
    if (blocks.size() > 5) {
      must(cuMemFree(blocks.front()), "cuMemFree");
      blocks.erase(blocks.begin());
    }
    void* pinned = nullptr;
    must(cuMemHostAlloc(&pinned, bytes, 0), "cuMemHostAlloc");
    must(cuMemFreeHost(pinned), "cuMemFreeHost");
    must(cuMemAllocManaged(&managed, bytes, CU_MEM_ATTACH_GLOBAL), "cuMemAllocManaged");
    must(cuMemFree(managed), "cuMemFree");
    void* const registered = std::aligned_alloc(4096, std::size_t{40} << 20);
    must(cuMemHostRegister(registered, std::size_t{40} << 20, 0), "cuMemHostRegister");
    must(cuMemHostUnregister(registered), "cuMemHostUnregister");
    std::free(registered);
    std::size_t free_bytes = 0, total_bytes = 0;
    must(cuMemGetInfo(&free_bytes, &total_bytes), "cuMemGetInfo");
  }
  for (const CUdeviceptr block : blocks) must(cuMemFree(block), "cuMemFree");
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  const int rounds = std::atoi(arguments[1]);
  CUdevice device;
  CUcontext context;
  must(cuInit(0), "cuInit");
  must(cuDeviceGet(&device, 0), "cuDeviceGet");
  must(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) threads.emplace_back(work, context, rounds);
  for (std::thread& thread : threads) thread.join();
  must(cuDevicePrimaryCtxRelease(device), "cuDevicePrimaryCtxRelease");
  std::puts("every copy is whole");
}
