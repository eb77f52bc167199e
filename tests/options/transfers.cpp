// Copies of every direction, kind of host memory and way of waiting, in numbers that the test knows.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <initializer_list>

#include "need.hpp"

namespace {

constexpr size_t kMiB = 1 << 20;

struct Memory {
  char *device, *other, *pinned, *pageable;
};

char* allocated(cudaError_t (*allocate)(void**, size_t), size_t bytes) {
  void* block = nullptr;
  need(allocate(&block, bytes), "an allocation");
  return static_cast<char*>(block);
}

[[gnu::noinline]] void upload_weights(const Memory& memory) {
  for (int i = 0; i < 3; ++i) NEED(cudaMemcpy(memory.device, memory.pageable, kMiB, cudaMemcpyHostToDevice));
}
[[gnu::noinline]] void upload_rows(const Memory& memory) {
  NEED(cudaMemcpy2D(memory.device, 1024, memory.pageable, 1000, 1000, 64, cudaMemcpyHostToDevice));
}
[[gnu::noinline]] void upload_guessed(const Memory& memory) {
  NEED(cudaMemcpy(memory.device, memory.pageable, 4096, cudaMemcpyDefault));
  NEED(cudaMemcpy(memory.device, memory.pinned + 64, 16384, cudaMemcpyDefault));
}
[[gnu::noinline]] void upload_staged(const Memory& memory) {
  for (int i = 0; i < 2; ++i)
    NEED(cudaMemcpyAsync(memory.device, memory.pinned, 2 * kMiB, cudaMemcpyHostToDevice, nullptr));
}
[[gnu::noinline]] void upload_carelessly(const Memory& memory) {
  NEED(cudaMemcpyAsync(memory.device, memory.pageable, 12288, cudaMemcpyHostToDevice, nullptr));
}
[[gnu::noinline]] void download(const Memory& memory) {
  NEED(cudaMemcpy(memory.pageable, memory.device, kMiB / 2, cudaMemcpyDeviceToHost));
  NEED(cudaMemcpy(memory.pageable, memory.device + 512, 8192, cudaMemcpyDefault));
}
[[gnu::noinline]] void download_staged(const Memory& memory) {
  NEED(cudaMemcpyAsync(memory.pinned + kMiB, memory.device, 65536, cudaMemcpyDeviceToHost, nullptr));
}
[[gnu::noinline]] void shuffle(const Memory& memory) {
  for (int i = 0; i < 4; ++i) NEED(cudaMemcpy(memory.other, memory.device, kMiB / 4, cudaMemcpyDeviceToDevice));
  NEED(cudaMemcpyAsync(memory.other, memory.device, 1000, cudaMemcpyDeviceToDevice, nullptr));
}
[[gnu::noinline]] void between_hosts(const Memory& memory) {
  NEED(
      cuMemcpy(reinterpret_cast<CUdeviceptr>(memory.pinned), reinterpret_cast<CUdeviceptr>(memory.pinned) + kMiB, 300));
}
[[gnu::noinline]] void refused(const Memory& memory) {
  if (!cuMemcpyHtoD(16, memory.pageable, 100)) need(1, "a copy to nowhere was taken");
}

}  // namespace

int main() {
  Memory memory{};
  memory.device = allocated(cudaMalloc, 4 * kMiB);
  memory.other = allocated(cudaMalloc, 4 * kMiB);
  memory.pinned = allocated(cudaMallocHost, 4 * kMiB);
  memory.pageable = static_cast<char*>(std::calloc(4, kMiB));
  for (auto* step : {upload_weights, upload_rows, upload_guessed, upload_staged, upload_carelessly, download,
                     download_staged, shuffle, between_hosts, refused})
    step(memory);
  NEED(cudaDeviceSynchronize());
  NEED(cudaFree(memory.device));
  NEED(cudaFree(memory.other));
  NEED(cudaFreeHost(memory.pinned));
  std::free(memory.pageable);
}
