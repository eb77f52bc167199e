// Memory of one device is written by another device's stream, and is freed while that device is current: the memory is
// not given to the next block before the work has ended.
#include <vector>

#include "../../simcuda/simcuda.h"
#include "../program.hpp"
// harness: simulator-only

namespace {

constexpr size_t kBytes = 64 << 20;  // more than is kept in any case

void write_late(void* block, int value, cudaStream_t stream) {
  simcuda_set_value("stream_delay_us", 30'000);
  NEED(cudaMemsetAsync(block, value, kBytes, stream));
  simcuda_set_value("stream_delay_us", 0);
}

}  // namespace

int main() {
  NEED(cudaSetDevice(0));
  NEED(cudaFree(nullptr));
  NEED(cudaSetDevice(1));
  NEED(cudaDeviceEnablePeerAccess(0, 0));
  cudaStream_t stream;
  NEED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (int round = 0; round < 2; ++round) {
    NEED(cudaSetDevice(0));
    void* const block = device_block(kBytes);
    NEED(cudaSetDevice(1));
    write_late(block, 7, stream);
    NEED(cudaFree(block));
    NEED(cudaSetDevice(0));
    void* const next = device_block(kBytes);
    NEED(cudaMemset(next, 1, kBytes));
    NEED(cudaDeviceSynchronize());
    NEED(cudaSetDevice(1));
    NEED(cudaStreamSynchronize(stream));
    NEED(cudaSetDevice(0));
    std::vector<unsigned char> bytes(kBytes);
    NEED(cudaMemcpy(bytes.data(), next, kBytes, cudaMemcpyDeviceToHost));
    size_t wrong = 0;
    for (const unsigned char byte : bytes) wrong += byte != 1;
    say("wrong bytes: %zu", wrong);
    NEED(cudaFree(next));
  }
  return finish();
}
