// Copies that could do better, in numbers that the test knows: waited for one by one, to odd addresses, and back to the
// host as they were sent.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr size_t kBytes = 2 << 20;

void need(int code, const char* what) {
  if (!code) return;
  std::printf("failed: %s: %d\n", what, code);
  std::exit(90);
}
#define NEED(call) need(call, #call)

char *device, *host;

[[gnu::noinline]] void one_by_one() {
  for (int i = 0; i < 1200; ++i) {
    NEED(cudaMemcpyAsync(device, host, 65536, cudaMemcpyHostToDevice, nullptr));
    NEED(cudaStreamSynchronize(nullptr));
  }
}
[[gnu::noinline]] void many_then_wait() {
  for (int i = 0; i < 1200; ++i) {
    NEED(cudaMemcpyAsync(device, host, 32768, cudaMemcpyHostToDevice, nullptr));
    NEED(cudaMemsetAsync(device, 0, 16, nullptr));
    NEED(cudaStreamSynchronize(nullptr));
  }
}
[[gnu::noinline]] void to_odd_addresses() {
  for (int i = 0; i < 1100; ++i) NEED(cudaMemcpy(device + (i % 10 ? 1 : 0), host, 20000, cudaMemcpyHostToDevice));
}
[[gnu::noinline]] void there_and_back() {
  for (int i = 0; i < 8; ++i) {
    std::memset(host, i, kBytes);
    NEED(cudaMemcpy(device, host, kBytes, cudaMemcpyHostToDevice));
    NEED(cudaMemcpy(host, device, kBytes, cudaMemcpyDeviceToHost));
  }
}
[[gnu::noinline]] void there_and_back_changed() {
  for (int i = 0; i < 8; ++i) {
    std::memset(host, i, kBytes);
    NEED(cudaMemcpy(device, host, kBytes, cudaMemcpyHostToDevice));
    NEED(cudaMemset(device, 100 + i, kBytes));
    NEED(cudaMemcpy(host, device, kBytes, cudaMemcpyDeviceToHost));
  }
}

}  // namespace

int main() {
  void* block = nullptr;
  NEED(cudaMalloc(&block, 2 * kBytes));
  device = static_cast<char*>(block);
  host = static_cast<char*>(std::calloc(1, kBytes));
  one_by_one();
  many_then_wait();
  to_odd_addresses();
  there_and_back();
  there_and_back_changed();
  NEED(cudaFree(device));
  std::free(host);
}
