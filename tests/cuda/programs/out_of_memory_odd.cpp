// As out_of_memory, with sizes that are rounded up where blocks are kept by class: as many fit as in the plain program.
// harness: environment=SIMCUDA_MEMORY=67108864
// harness: simulator-only
#include "../program.hpp"

int main() {
  NEED(cudaFree(nullptr));
  for (size_t bytes : {1100000u, 70000u, 9000001u}) {
    for (int round = 0; round < 2; ++round) {
      std::vector<void*> blocks;
      for (void* block = nullptr; cudaMalloc(&block, bytes) == cudaSuccess;) {
        ++made.device;
        blocks.push_back(block);
      }
      say("%zu blocks of %zu bytes, then %s", blocks.size(), bytes, name_of(cudaGetLastError()));
      for (void* block : blocks) NEED(cudaFree(block));
    }
  }
  return finish();
}
