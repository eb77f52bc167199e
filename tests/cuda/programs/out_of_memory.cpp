// The device is full: the native error at the native moment, gone from the last error once taken; after frees, a large
// block that only fits if what is kept for reuse is given back.
// harness: environment=SIMCUDA_MEMORY=67108864
// harness: simulator-only
#include "../program.hpp"

static std::vector<void*> fill_up(size_t bytes) {
  std::vector<void*> blocks;
  for (void* block = nullptr; cudaMalloc(&block, bytes) == cudaSuccess;) {
    ++made.device;
    blocks.push_back(block);
  }
  say("%zu blocks of %zu bytes, then %s", blocks.size(), bytes, name_of(cudaGetLastError()));
  SHOW(cudaGetLastError());
  return blocks;
}
static void release(const std::vector<void*>& blocks) {
  for (void* block : blocks) NEED(cudaFree(block));
}

int main() {
  NEED(cudaFree(nullptr));
  void* block = nullptr;
  for (int round = 0; round < 2; ++round) {
    release(fill_up(1 << 20));
    release(fill_up(64 << 10));
    SHOW_MADE(device, cudaMalloc(&block, 60 << 20));
    SHOW(cudaGetLastError());
    SHOW(cudaFree(block));
    release(fill_up(7 << 20));
    SHOW_MADE(device, cudaMalloc(&block, 64 << 20));
    SHOW(cudaFree(block));
    SHOW(cudaMalloc(&block, (64 << 20) + 1));
    SHOW(cudaGetLastError());
  }
  // Kinds compete for the same memory: what one of them keeps must not be missing for another.
  auto blocks = fill_up(2 << 20);
  cudaStream_t stream = new_stream();
  release(blocks);
  SHOW_MADE(async, cudaMallocAsync(&block, 50 << 20, stream));
  SHOW(cudaFreeAsync(block, stream));
  NEED(cudaStreamSynchronize(stream));
  cudaMemPool_t pool = nullptr;
  NEED(cudaDeviceGetDefaultMemPool(&pool, 0));
  NEED(cudaMemPoolTrimTo(pool, 0));
  blocks = fill_up(2 << 20);
  release(blocks);
  const cudaChannelFormatDesc words{32, 0, 0, 0, cudaChannelFormatKindUnsigned};
  cudaArray_t array = nullptr;
  SHOW_MADE(array, cudaMallocArray(&array, &words, 3500, 3500));
  SHOW(cudaFreeArray(array));
  return finish();
}
