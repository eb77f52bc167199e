// A library that uses the CUDA runtime which it is linked to; loaded by two_runtimes and deep_binding.
#include <cuda_runtime_api.h>

#include <vector>

extern "C" int plugin_version() {
  int version = 0;
  cudaRuntimeGetVersion(&version);
  return version;
}

// How many words are not what they were set to.
extern "C" int plugin_use(unsigned value, int* made_device, int* made_pinned) {
  constexpr size_t kBytes = 20000;
  void *block = nullptr, *pinned = nullptr;
  if (cudaMalloc(&block, kBytes) != cudaSuccess) return -1;
  ++*made_device;
  if (cudaMallocHost(&pinned, kBytes) != cudaSuccess) return -2;
  ++*made_pinned;
  unsigned* words = static_cast<unsigned*>(pinned);
  for (size_t i = 0; i < kBytes / 4; ++i) words[i] = value;
  if (cudaMemcpy(block, words, kBytes, cudaMemcpyHostToDevice) != cudaSuccess) return -3;
  std::vector<unsigned> back(kBytes / 4);
  if (cudaMemcpy(back.data(), block, kBytes, cudaMemcpyDeviceToHost) != cudaSuccess) return -4;
  int wrong = 0;
  for (unsigned word : back) wrong += word != value;
  if (cudaFree(block) != cudaSuccess || cudaFreeHost(pinned) != cudaSuccess) return -5;
  return wrong;
}

// Leaves an error behind in this runtime when its version is odd.
extern "C" int plugin_last_error() {
  if (plugin_version() / 1000 % 2) (void)cudaMalloc(nullptr, 16);
  return cudaGetLastError();
}
