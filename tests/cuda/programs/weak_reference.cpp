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
  say("cudaMalloc is there: %s", yes_no(cudaMalloc != nullptr));
  say("cudaThatNeverWas is there: %s", yes_no(cudaThatNeverWas != nullptr));
  if (!cudaMalloc || !cudaFree) return finish();
  unsigned* block = device_block(4000);
  fill(nullptr, block, 4000, 5);
  say("%s", contents(block, 4000).c_str());
  SHOW(cudaFree(block));
  return finish();
}
