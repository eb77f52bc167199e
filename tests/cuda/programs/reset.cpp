// cudaDeviceReset in a loop, with blocks live and freed: all of them are gone, and the next round starts clean. The
// handles and addresses may be the same again.
// harness: dropped=device:12,pinned:6
#include "../program.hpp"

constexpr size_t kBytes = 100000;

int main() {
  void* kept_address = nullptr;
  for (int round = 0; round < 6; ++round) {
    cudaStream_t stream = new_stream();
    unsigned *kept = device_block(kBytes), *freed = device_block(kBytes), *pinned = pinned_block(kBytes);
    fill(stream, kept, kBytes, round);
    fill(stream, freed, kBytes, 77);
    NEED(cudaStreamSynchronize(stream));
    NEED(cudaFree(freed));
    unsigned* again = device_block(kBytes);
    fill(stream, again, kBytes, 50 + round);
    NEED(cudaStreamSynchronize(stream));
    say("kept %s, again %s", contents(kept, kBytes).c_str(), contents(again, kBytes).c_str());
    memset(pinned, 0, kBytes);
    kept_address = kept;
    SHOW(cudaDeviceReset());
    SHOW(cudaGetLastError());
  }
  SHOW(cudaFree(kept_address));
  forget_error();
  unsigned* block = device_block(kBytes);
  fill(nullptr, block, kBytes, 5);
  say("after all: %s", contents(block, kBytes).c_str());
  SHOW(cudaFree(block));
  SHOW(cudaDeviceReset());
  return finish();
}
