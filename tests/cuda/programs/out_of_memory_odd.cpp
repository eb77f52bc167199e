// As out_of_memory, with sizes that are rounded up where blocks are kept by class: rounding may cost a ninth of the
// memory, no more, and gets no worse from round to round.
// harness: environment=SIMCUDA_MEMORY=67108864
// harness: simulator-only
// harness: figures=off
#include "../program.hpp"

int main() {
  NEED(cudaFree(nullptr));
  for (size_t bytes : {1100000u, 70000u, 300001u}) {
    const size_t fit = (64u << 20) / ((bytes + 511) / 512 * 512);
    for (int round = 0; round < 3; ++round) {
      std::vector<void*> blocks;
      for (void* block = nullptr; cudaMalloc(&block, bytes) == cudaSuccess;) blocks.push_back(block);
      say("%zu bytes, then %s: at most as many as fit %s, at least eight ninths of them %s", bytes,
          name_of(cudaGetLastError()), yes_no(blocks.size() <= fit), yes_no(blocks.size() * 9 >= fit * 8));
      for (void* block : blocks) NEED(cudaFree(block));
    }
  }
  return finish();
}
