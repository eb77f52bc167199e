// The first CUDA call of a thread is an allocation or a free; the thread that made a block is gone when it is freed.
// harness: recycles=device
#include <thread>

#include "../program.hpp"

int main() {
  unsigned* block = nullptr;
  for (int round = 0; round < 4; ++round) {
    std::thread([&] { block = device_block(5000); }).join();
    std::thread([&] {
      fill(nullptr, block, 5000, 9);
      NEED(cudaDeviceSynchronize());
    }).join();
    say("holds %s", contents(block, 5000).c_str());
    std::thread([&] { SHOW(cudaFree(block)); }).join();
    std::thread([&] { SHOW(cudaFree(block)); }).join();
    std::thread([&] { SHOW(cudaGetLastError()); }).join();
  }
  forget_error();
  std::thread([&] {
    void* pinned = pinned_block(100);
    SHOW(cudaFreeHost(pinned));
  }).join();
  return finish();
}
