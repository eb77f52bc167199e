// cudaMemGetInfo says as much as in the beginning when everything was freed and no work is left, whichever thread
// freed the blocks and however small they are.
// harness: simulator-only
#include <thread>
#include <vector>

#include "../program.hpp"

namespace {

size_t free_now() {
  size_t available = 0, total = 0;
  NEED(cudaMemGetInfo(&available, &total));
  return available;
}

std::vector<void*> blocks_up_to(size_t bytes_max, int count) {
  std::vector<void*> blocks;
  for (int i = 0; i < count; ++i) blocks.push_back(device_block(1 + bytes_max / count * i));
  return blocks;
}

void free_all(const std::vector<void*>& blocks) {
  for (void* const block : blocks) NEED(cudaFree(block));
}

}  // namespace

int main() {
  SHOW(cudaFree(nullptr));
  const size_t before = free_now();
  for (const size_t bytes_max : {20'000, 200'000, 5'000'000}) {
    const std::vector<void*> blocks = blocks_up_to(bytes_max, 300);
    free_all(blocks);
    SHOW(cudaDeviceSynchronize());
    say("up to %zu bytes: %zu less", bytes_max, before - free_now());
    std::vector<void*> of_thread;
    std::thread([&] { of_thread = blocks_up_to(bytes_max, 50); }).join();
    std::thread([&] { free_all(of_thread); }).join();
    SHOW(cudaDeviceSynchronize());
    say("freed by another thread: %zu less", before - free_now());
  }
  return finish();
}
