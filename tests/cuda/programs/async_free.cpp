// cudaFreeAsync of blocks that cudaMalloc made, in stream order: the block is gone, later blocks are not disturbed.
#include "../program.hpp"

constexpr size_t kBytes = 50000;

int main() {
  cudaStream_t stream = new_stream(), other = new_stream();
  for (int round = 0; round < 4; ++round) {
    unsigned *block = device_block(kBytes), *witness = device_block(kBytes);
    fill(stream, block, kBytes, 1);
    keep_busy(stream, 50000);  // until `next` has its memory, however slow the machine: else it may be this block's
    NEED(launch(stream, kBytes / 4, Copy{block, witness}));
    SHOW(cudaFreeAsync(block, stream));
    unsigned* next = device_block(kBytes);
    fill(other, next, kBytes, 2);
    NEED(cudaDeviceSynchronize());
    say("witness %s, next %s", contents(witness, kBytes).c_str(), contents(next, kBytes).c_str());
    SHOW(cudaFree(block));
    forget_error();
    for (unsigned* one : {witness, next}) NEED(cudaFree(one));
  }
  for (cudaStream_t one : {stream, other}) NEED(cudaStreamDestroy(one));
  return finish();
}
