// The same on each device: two blocks, of which the first is never freed, and one more that may take the second's
// place.
//   devices FULL    on device FULL also asks for more than there is; -1: on none
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include "need.hpp"

int main(int, char** arguments) {
  constexpr size_t kMiB = 1 << 20;
  const int full = std::atoi(arguments[1]);
  int devices = 0;
  NEED(cudaGetDeviceCount(&devices));
  for (int device = 0; device < devices; ++device) {
    NEED(cudaSetDevice(device));
    void *kept = nullptr, *passing = nullptr;
    NEED(cudaMalloc(&kept, 8 * kMiB));
    if (device == full) std::printf("device %d: %d\n", device, cudaMalloc(&passing, size_t{1} << 50));
    for (int i = 0; i < 2; ++i) {
      NEED(cudaMalloc(&passing, 4 * kMiB));
      NEED(cudaFree(passing));
    }
  }
}
