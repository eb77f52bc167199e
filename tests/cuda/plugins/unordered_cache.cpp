// What the race proof must catch: a cache that gives freed device memory again without waiting for the work on it.
// Preloaded into a program on the shared runtime; the test passes when the program finds a stale byte.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <map>
#include <mutex>
#include <vector>

static std::mutex lock;
static std::map<size_t, std::vector<void*>> cached;
static std::map<void*, size_t> live;

extern "C" cudaError_t cudaMalloc(void** block, size_t bytes) {
  static const auto next = reinterpret_cast<cudaError_t (*)(void**, size_t)>(dlsym(RTLD_NEXT, "cudaMalloc"));
  std::lock_guard<std::mutex> guard(lock);
  std::vector<void*>& same_size = cached[bytes];
  cudaError_t code = cudaSuccess;
  if (same_size.empty()) {
    code = next(block, bytes);
  } else {
    *block = same_size.back();
    same_size.pop_back();
  }
  if (code == cudaSuccess) live[*block] = bytes;
  return code;
}

extern "C" cudaError_t cudaFree(void* block) {
  static const auto next = reinterpret_cast<cudaError_t (*)(void*)>(dlsym(RTLD_NEXT, "cudaFree"));
  {
    std::lock_guard<std::mutex> guard(lock);
    const auto found = live.find(block);
    if (found != live.end()) {
      cached[found->second].push_back(block);
      live.erase(found);
      return cudaSuccess;
    }
  }
  return next(block);
}
