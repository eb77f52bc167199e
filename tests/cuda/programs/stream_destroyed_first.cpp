// A stream is destroyed while its work is pending: the work still runs, and blocks that it uses, freed after that, are
// not given to others too early.
// harness: recycles=device
#include "../program.hpp"

constexpr size_t kBytes = 65536;

int main() {
  cudaStream_t other = new_stream();
  for (int round = 0; round < 5; ++round) {
    cudaStream_t stream = new_stream();
    unsigned *block = device_block(kBytes), *witness = device_block(kBytes);
    fill(stream, block, kBytes, 1);
    keep_busy(stream, 10000);
    NEED(launch(stream, kBytes / 4, Copy{block, witness}));
    SHOW(cudaStreamDestroy(stream));
    SHOW(cudaFree(block));
    unsigned* next = device_block(kBytes);
    fill(other, next, kBytes, 2);
    NEED(cudaDeviceSynchronize());
    say("witness %s, next %s", contents(witness, kBytes).c_str(), contents(next, kBytes).c_str());
    NEED(cudaFree(next));
    NEED(cudaFree(witness));
  }
  NEED(cudaStreamDestroy(other));
  return finish();
}
