// Nothing is linked: the driver and the runtime are loaded with dlopen and every function is found with dlsym, in the
// library's own handle, as ctypes and numba do.
// harness: recycles=device
// harness: link=none
#include <dlfcn.h>

#include "../say.hpp"

static const char* const kRuntimes[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so"};

template <class Function>
static Function find(void* library, const char* name) {
  Function found = reinterpret_cast<Function>(dlsym(library, name));
  if (!found) {
    say("%s is not there", name);
    exit(90);
  }
  return found;
}

static void use_driver() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return say("no driver");
  say("cuInit %d", find<int (*)(unsigned)>(library, "cuInit")(0));
  void* context = nullptr;
  say("cuDevicePrimaryCtxRetain %d", find<int (*)(void**, int)>(library, "cuDevicePrimaryCtxRetain")(&context, 0));
  say("cuCtxSetCurrent %d", find<int (*)(void*)>(library, "cuCtxSetCurrent")(context));
  auto allocate = find<int (*)(unsigned long long*, size_t)>(library, "cuMemAlloc_v2");
  auto set = find<int (*)(unsigned long long, unsigned, size_t)>(library, "cuMemsetD32_v2");
  auto read = find<int (*)(void*, unsigned long long, size_t)>(library, "cuMemcpyDtoH_v2");
  auto release = find<int (*)(unsigned long long)>(library, "cuMemFree_v2");
  for (unsigned round = 0; round < 3; ++round) {
    unsigned long long block = 0;
    const int code = allocate(&block, 4000);
    made.device += code == 0;
    say("cuMemAlloc %d", code);
    set(block, round, 1000);
    std::vector<unsigned> words(1000);
    read(words.data(), block, 4000);
    say("holds %s", describe(words).c_str());
    say("cuMemFree %d, again %d", release(block), release(block));
  }
  say("a function that is not there: %s", yes_no(dlsym(library, "cuThatNeverWas") != nullptr));
}

static void use_runtime() {
  void* library = nullptr;
  for (const char* name : kRuntimes) {
    if (!library) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (!library) return say("no runtime");
  auto allocate = find<int (*)(void**, size_t)>(library, "cudaMalloc");
  auto release = find<int (*)(void*)>(library, "cudaFree");
  auto pinned = find<int (*)(void**, size_t)>(library, "cudaMallocHost");
  auto release_pinned = find<int (*)(void*)>(library, "cudaFreeHost");
  for (int round = 0; round < 3; ++round) {
    void *block = nullptr, *host = nullptr;
    int code = allocate(&block, 4000);
    made.device += code == 0;
    say("cudaMalloc %d, cudaFree %d", code, release(block));
    code = pinned(&host, 4000);
    made.pinned += code == 0;
    say("cudaMallocHost %d, cudaFreeHost %d", code, release_pinned(host));
  }
}

int main() {
  use_driver();
  use_runtime();
  return finish();
}
