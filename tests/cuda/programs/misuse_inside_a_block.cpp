// A free of a pointer inside a block: the native error, one line, and the block goes on.
// harness: says=cistern: \w+\(0x\w+\): not the start of a live allocation; .*CUDA_ERROR_INVALID_VALUE.*
#include "../program.hpp"

int main() {
  unsigned* block = device_block(8192);
  fill(nullptr, block, 8192, 6);
  SHOW(cudaFree(block + 64));
  SHOW(cudaGetLastError());
  say("holds %s", contents(block, 8192).c_str());
  SHOW(cudaFree(block));
  return finish();
}
