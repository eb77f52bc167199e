// A program whose habits a report names: it allocates in a loop, waits often, had more at one time than it has at the
// end, and leaves streams and events behind. Prints nothing.
#include <cuda_runtime.h>

#include <vector>

#include "need.hpp"

namespace {

constexpr size_t kMiB = 1 << 20;

[[gnu::noinline]] void allocate_in_loop() {
  for (int i = 0; i < 1500; ++i) {
    void* block = nullptr;
    NEED(cudaMalloc(&block, 4096));
    NEED(cudaFree(block));
  }
}

[[gnu::noinline]] void wait_often(cudaStream_t stream) {
  for (int i = 0; i < 1200; ++i) NEED(cudaStreamSynchronize(stream));
}

[[gnu::noinline]] void* hold_much() {
  void* block = nullptr;
  NEED(cudaMalloc(&block, 48 * kMiB));
  return block;
}

[[gnu::noinline]] void* hold_little() {
  void* block = nullptr;
  NEED(cudaMalloc(&block, kMiB));
  return block;
}

[[gnu::noinline]] void leave_events() {
  std::vector<cudaEvent_t> events(20);
  for (cudaEvent_t& event : events) NEED(cudaEventCreate(&event));
  for (int i = 0; i < 5; ++i) NEED(cudaEventDestroy(events[i]));
}

[[gnu::noinline]] void leave_streams() {
  cudaStream_t streams[4];
  for (cudaStream_t& stream : streams) NEED(cudaStreamCreate(&stream));
  wait_often(streams[0]);
  NEED(cudaStreamDestroy(streams[0]));
}

}  // namespace

int main() {
  void* const little = hold_little();
  void* const much = hold_much();
  NEED(cudaFree(much));
  NEED(cudaFree(little));
  allocate_in_loop();
  leave_events();
  leave_streams();
}
