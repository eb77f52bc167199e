// A host function of a stream must not call CUDA: what it gets for it natively, it gets preloaded; host memory is free
// to use there.
// harness: simulator-only
#include "../program.hpp"

static std::atomic<int> codes[4];
static void called(void* block) {
  void* more = nullptr;
  codes[0] = cudaMalloc(&more, 1000);
  codes[1] = cudaFree(block);
  codes[2] = cudaMallocHost(&more, 1000);
  free(malloc(1000));
  codes[3] = cudaGetLastError();
}

int main() {
  cudaStream_t stream = new_stream();
  unsigned* block = device_block(8192);
  NEED(cudaFree(device_block(1000)));
  fill(stream, block, 8192, 3);
  SHOW(cudaLaunchHostFunc(stream, called, block));
  NEED(cudaStreamSynchronize(stream));
  for (std::atomic<int>& code : codes) say("in the host function: %s", name_of(static_cast<cudaError_t>(code.load())));
  say("the block holds %s", contents(block, 8192).c_str());
  SHOW(cudaFree(block));
  NEED(cudaStreamDestroy(stream));
  return finish();
}
