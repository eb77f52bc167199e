// A program that refers to the runtime's functions weakly and uses them where they are there. (In the static
// runtime's archive a weak reference finds nothing.)
// harness: link=shared
#include "../program.hpp"

extern "C" {
#pragma weak cudaMalloc
#pragma weak cudaFree
__attribute__((weak)) cudaError_t cudaThatNeverWas(int);
}

int main() {
  // nvcc's headers have templates of these names, too.
  cudaError_t (*const allocate)(void**, std::size_t) = cudaMalloc;
  cudaError_t (*const give_back)(void*) = cudaFree;
  say("cudaMalloc is there: %s", yes_no(allocate != nullptr));
  say("cudaThatNeverWas is there: %s", yes_no(cudaThatNeverWas != nullptr));
  if (!allocate || !give_back) return finish();
  unsigned* block = device_block(4000);
  fill(nullptr, block, 4000, 5);
  say("%s", contents(block, 4000).c_str());
  SHOW(cudaFree(block));
  return finish();
}
