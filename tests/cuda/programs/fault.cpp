// A kernel faults: from then on every call of the context gives that error, an allocation that a cache could serve
// included, until the device is reset.
// harness: dropped=device:1,pinned:1
#include "../program.hpp"

constexpr size_t kBytes = 8192;

int main() {
  unsigned *kept = device_block(kBytes), *freed = device_block(kBytes), *pinned = pinned_block(kBytes);
  NEED(cudaFree(freed));
  SHOW(launch_fault(nullptr));
  SHOW(cudaDeviceSynchronize());
  void* block = nullptr;
  SHOW(cudaMalloc(&block, kBytes));
  SHOW(cudaGetLastError());
  SHOW(cudaGetLastError());
  SHOW(cudaFree(kept));
  SHOW(cudaMallocHost(&block, kBytes));
  SHOW(cudaFreeHost(pinned));
  SHOW(cudaMemcpy(kept, pinned, kBytes, cudaMemcpyHostToDevice));
  size_t available = 0, total = 0;
  SHOW(cudaMemGetInfo(&available, &total));
  SHOW(cudaStreamSynchronize(nullptr));
  SHOW(cudaMallocManaged(&block, kBytes, cudaMemAttachGlobal));
  SHOW(cudaPeekAtLastError());
  SHOW(cudaDeviceReset());
  SHOW(cudaGetLastError());
  SHOW(cudaGetLastError());
  // On some machines no device is available to the process any more.
  unsigned* next = nullptr;
  const cudaError_t again = cudaMalloc(reinterpret_cast<void**>(&next), kBytes);
  say("after the reset: %s", name_of(again));
  if (again != cudaSuccess) return finish();
  ++made.device;
  fill(nullptr, next, kBytes, 4);
  say("after the reset: %s", contents(next, kBytes).c_str());
  SHOW(cudaFree(next));
  return finish();
}
