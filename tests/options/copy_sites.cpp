// Copies that could do better, in numbers that the test knows: waited for one by one, to odd addresses, and back to the
// host as they were sent.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "need.hpp"

namespace {

constexpr size_t kBytes = 2 << 20;

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

// Nodes of a graph that is never launched are no copies.
[[gnu::noinline]] void captured() {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  NEED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  NEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  NEED(cudaMemcpyAsync(device, host, kBytes, cudaMemcpyHostToDevice, stream));
  NEED(cudaMemcpyAsync(host, device, kBytes, cudaMemcpyDeviceToHost, stream));
  NEED(cudaStreamEndCapture(stream, &graph));
  NEED(cudaGraphDestroy(graph));
  NEED(cudaStreamDestroy(stream));
}
void nothing(void*) {}
[[gnu::noinline]] void copy_on(cudaStream_t stream) {
  NEED(cudaMemcpyAsync(device, host, 4096, cudaMemcpyHostToDevice, stream));
}
// The next call waits for something else, or there is another one before.
[[gnu::noinline]] void waited_otherwise() {
  cudaStream_t stream = nullptr, other = nullptr;
  cudaEvent_t event = nullptr;
  NEED(cudaStreamCreate(&stream));
  NEED(cudaStreamCreate(&other));
  NEED(cudaEventCreate(&event));
  NEED(cudaEventRecord(event, other));
  copy_on(stream);
  NEED(cudaStreamSynchronize(other));
  copy_on(stream);
  NEED(cudaEventSynchronize(event));
  copy_on(stream);
  NEED(cudaLaunchHostFunc(stream, nothing, nullptr));
  NEED(cudaStreamSynchronize(stream));
  copy_on(stream);
  NEED(cudaStreamWaitEvent(stream, event, 0));
  NEED(cudaStreamSynchronize(stream));
  copy_on(stream);  // these two are
  NEED(cudaEventRecord(event, stream));
  NEED(cudaEventSynchronize(event));
  copy_on(stream);
  NEED(cudaDeviceSynchronize());
  NEED(cudaEventDestroy(event));
  NEED(cudaStreamDestroy(stream));
  NEED(cudaStreamDestroy(other));
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
  captured();
  waited_otherwise();
  NEED(cudaFree(device));
  std::free(host);
}
