// Memory of every kind that the report knows, in numbers that the test knows: of each kind some are made, and the last
// is never freed, under a function of its own.
//   kinds all                every kind
//   kinds share              for the first: makes device memory, prints its IPC handle in hex, waits for stdin to end
//   kinds contexts [ended]   blocks that go with a destroyed context, and with a reset; then ends by SIGTERM
//   kinds load FILE          loads a library, then allocates once
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "need.hpp"

namespace {

constexpr size_t kMiB = 1 << 20;

[[gnu::noinline]] void* keep_device(size_t bytes) {
  void* block = nullptr;
  NEED(cudaMalloc(&block, bytes));
  return block;
}
void on_device(int device, size_t bytes, int more) {
  NEED(cudaSetDevice(device));
  for (int i = 0; i < more; ++i) NEED(cudaFree(keep_device(bytes)));
  keep_device(bytes);
}

[[gnu::noinline]] void* keep_pinned() {
  void* block = nullptr;
  NEED(cudaHostAlloc(&block, 3 * kMiB, cudaHostAllocPortable));
  return block;
}
[[gnu::noinline]] void* keep_managed() {
  void* block = nullptr;
  NEED(cudaMallocManaged(&block, 4 * kMiB, cudaMemAttachGlobal));
  return block;
}
[[gnu::noinline]] void* keep_ordered() {
  void* block = nullptr;
  NEED(cudaMallocAsync(&block, 5 * kMiB, nullptr));
  return block;
}
[[gnu::noinline]] cudaArray_t keep_array() {
  const cudaChannelFormatDesc words{32, 0, 0, 0, cudaChannelFormatKindUnsigned};
  cudaArray_t array = nullptr;
  NEED(cudaMallocArray(&array, &words, 512, 256));
  return array;
}
[[gnu::noinline]] CUmemGenericAllocationHandle keep_physical() {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = 0;
  CUmemGenericAllocationHandle handle = 0;
  NEED(cuMemCreate(&handle, 6 * kMiB, &properties, 0));
  return handle;
}
[[gnu::noinline]] void* keep_registered() {
  void* block = std::aligned_alloc(4096, 7 * kMiB);
  NEED(cudaHostRegister(block, 7 * kMiB, cudaHostRegisterDefault));
  return block;
}

void print_handle(const cudaIpcMemHandle_t& handle) {
  for (unsigned char byte : handle.reserved) std::printf("%02x", byte);
  std::puts("");
  std::fflush(stdout);
}
cudaIpcMemHandle_t parse_handle(const char* text) {
  cudaIpcMemHandle_t handle{};
  for (size_t i = 0; i < sizeof handle.reserved; ++i) {
    const char digits[3] = {text[2 * i], text[2 * i + 1], 0};
    handle.reserved[i] = static_cast<char>(std::strtol(digits, nullptr, 16));
  }
  return handle;
}

int share() {
  cudaIpcMemHandle_t handle{};
  NEED(cudaIpcGetMemHandle(&handle, keep_device(kMiB)));
  print_handle(handle);
  char end;
  return read(0, &end, 1) == 0 ? 0 : 1;
}

// Another process's memory: it must outlive our use of it.
class Sharer {
 public:
  Sharer() {
    int to_child[2], from_child[2];
    NEED(pipe(to_child));
    NEED(pipe(from_child));
    child_ = fork();
    if (!child_) {
      dup2(to_child[0], 0);
      dup2(from_child[1], 1);
      for (int end : {to_child[0], to_child[1], from_child[0], from_child[1]}) close(end);
      unsetenv("LD_PRELOAD");
      execl("/proc/self/exe", "kinds", "share", nullptr);
      _exit(126);
    }
    close(to_child[0]);
    close(from_child[1]);
    hold_ = to_child[1];
    std::FILE* lines = fdopen(from_child[0], "r");
    if (!std::fgets(text_, sizeof text_, lines)) need(1, "the other process");
    std::fclose(lines);
  }
  ~Sharer() {
    close(hold_);
    waitpid(child_, nullptr, 0);
  }
  cudaIpcMemHandle_t handle() const { return parse_handle(text_); }

 private:
  pid_t child_;
  int hold_;
  char text_[256] = {};
};

[[gnu::noinline]] void* keep_imported(const cudaIpcMemHandle_t& handle) {
  void* block = nullptr;
  NEED(cudaIpcOpenMemHandle(&block, handle, cudaIpcMemLazyEnablePeerAccess));
  return block;
}

int all() {
  Sharer sharer;  // before our own first use: nobody's CUDA survives a fork
  on_device(0, kMiB, 2);
  on_device(1, 2 * kMiB, 1);
  NEED(cudaSetDevice(0));
  NEED(cudaFreeHost(keep_pinned()));
  keep_pinned();
  NEED(cudaFree(keep_managed()));
  keep_managed();
  NEED(cudaFreeAsync(keep_ordered(), nullptr));
  keep_ordered();
  NEED(cudaFreeArray(keep_array()));
  keep_array();
  NEED(cuMemRelease(keep_physical()));
  keep_physical();
  NEED(cudaHostUnregister(keep_registered()));
  keep_registered();
  NEED(cudaIpcCloseMemHandle(keep_imported(sharer.handle())));
  keep_imported(sharer.handle());
  return 0;
}

[[gnu::noinline]] void lose_with_context() {
  CUcontext context = nullptr;
  CUdeviceptr block = 0;
  NEED(cuCtxCreate(&context, nullptr, 0, 0));
  NEED(cuMemAlloc(&block, kMiB));
  NEED(cuMemAlloc(&block, kMiB));
  NEED(cuMemFree(block));
  NEED(cuCtxDestroy(context));
}
[[gnu::noinline]] void lose_with_reset() {
  keep_device(2 * kMiB);
  keep_pinned();
  keep_managed();
  NEED(cudaDeviceReset());
}
int contexts(bool ends_by_signal) {
  NEED(cuInit(0));
  lose_with_context();
  lose_with_reset();
  NEED(cudaFree(keep_device(kMiB)));
  if (ends_by_signal) raise(SIGTERM);
  return 0;
}

int load(const char* file) {
  if (!dlopen(file, RTLD_NOW | RTLD_LOCAL)) need(1, dlerror());
  NEED(cudaFree(keep_device(kMiB)));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  if (!std::strcmp(what, "all")) return all();
  if (!std::strcmp(what, "share")) return share();
  if (!std::strcmp(what, "contexts")) return contexts(argc == 3 && !std::strcmp(argv[2], "ended"));
  if (!std::strcmp(what, "load") && argc == 3) return load(argv[2]);
  return 2;
}
