// One misuse per run, named by the argument. Prints what each wrong call answered.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr size_t kBytes = 1 << 20;

void need(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  std::printf("set-up failed: %s: %s\n", what, cudaGetErrorName(code));
  std::exit(90);
}
#define NEED(call) need(call, #call)

void show(const char* what, cudaError_t code) {
  std::printf("%s: %s, then %s\n", what, cudaGetErrorName(code), cudaGetErrorName(cudaGetLastError()));
}
#define SHOW(call) show(#call, call)

[[gnu::noinline]] char* make_device() {
  void* block = nullptr;
  NEED(cudaMalloc(&block, kBytes));
  return static_cast<char*>(block);
}
[[gnu::noinline]] char* make_pinned(size_t bytes) {
  void* block = nullptr;
  NEED(cudaMallocHost(&block, bytes));
  return static_cast<char*>(block);
}
[[gnu::noinline]] void release_device(void* block) { NEED(cudaFree(block)); }
[[gnu::noinline]] void release_pinned(void* block) { NEED(cudaFreeHost(block)); }

void device_twice() {
  char* device = make_device();
  release_device(device);
  SHOW(cudaFree(device));
}
void device_twice_ordered() {
  char* device = make_device();
  release_device(device);
  SHOW(cudaFreeAsync(device, nullptr));
}
void pinned_twice(size_t bytes) {
  char* pinned = make_pinned(bytes);
  release_pinned(pinned);
  SHOW(cudaFreeHost(pinned));
}
void pinned_twice() { pinned_twice(kBytes); }
void small_pinned_twice() { pinned_twice(100); }
void wild() { SHOW(cudaFree(reinterpret_cast<void*>(0x700000001000))); }
void wild_pinned() {
  static char local[64];
  SHOW(cudaFreeHost(local));
}
void inside_device() {
  char* device = make_device();
  SHOW(cudaFree(device + 512));
  SHOW(cudaFree(device));
}
void inside_pinned(size_t bytes, size_t offset) {
  char* pinned = make_pinned(bytes);
  SHOW(cudaFreeHost(pinned + offset));
  SHOW(cudaFreeHost(pinned));
}
void inside_pinned() { inside_pinned(kBytes, 512); }
void inside_small_pinned() { inside_pinned(1000, 16); }
void pinned_by_free(size_t bytes) {
  char* pinned = make_pinned(bytes);
  SHOW(cudaFree(pinned));
  std::memset(pinned, 1, bytes);
  SHOW(cudaFreeHost(pinned));
}
void pinned_by_free() { pinned_by_free(kBytes); }
void small_pinned_by_free() { pinned_by_free(100); }
void device_by_free_host() {
  char* device = make_device();
  SHOW(cudaFreeHost(device));
  SHOW(cudaFree(device));
}
void pinned_in_order(size_t bytes) {
  char* pinned = make_pinned(bytes);
  SHOW(cudaFreeAsync(pinned, nullptr));
  SHOW(cudaFreeHost(pinned));
}
void pinned_in_order() { pinned_in_order(kBytes); }
void small_pinned_in_order() { pinned_in_order(100); }
void managed_twice() {
  void* managed = nullptr;
  NEED(cudaMallocManaged(&managed, kBytes, cudaMemAttachGlobal));
  NEED(cudaFree(managed));
  SHOW(cudaFree(managed));
}
void after_reset() {
  char* device = make_device();
  NEED(cudaDeviceReset());
  SHOW(cudaFree(device));
}
// The same place again and again, and another one.
[[gnu::noinline]] void use(char* block) {
  static char host[64];
  for (int i = 0; i < 3; ++i) SHOW(cudaMemcpy(block, host, sizeof host, cudaMemcpyHostToDevice));
}
void used_after_free() {
  char* device = make_device();
  release_device(device);
  use(device);
  cudaPointerAttributes attributes{};
  SHOW(cudaPointerGetAttributes(&attributes, device));
  std::printf("type %d\n", static_cast<int>(attributes.type));
}
void used_in_child() {
  char* device = make_device();
  release_device(device);
  const pid_t child = fork();
  if (!child) {
    char byte = 0;
    _exit(cudaMemcpy(device, &byte, 1, cudaMemcpyHostToDevice) == cudaSuccess);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::printf("in the child: %d\n", status);
}
// Where a call takes any address, the driver may take a stale one for the host's.
void used_as_any_memory() {
  char *device = make_device(), *other = make_device();
  release_device(device);
  static char host[64];
  SHOW(cudaMemcpy(device, host, sizeof host, cudaMemcpyDefault));
  SHOW(cudaMemcpy(host, device, sizeof host, cudaMemcpyDefault));
  SHOW(cudaMemcpy(other, device, sizeof host, cudaMemcpyHostToDevice));
  cudaStream_t stream = nullptr;
  NEED(cudaStreamCreate(&stream));
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  size_t first = 0, sizes[] = {64, 64};
  const auto address = [](char* block) { return reinterpret_cast<CUdeviceptr>(block); };
  CUdeviceptr to[] = {address(other), address(other)}, from[] = {address(other) + 64, address(device)};
  std::printf("batch: %d\n", cuMemcpyBatchAsync(to, from, sizes, 2, &attributes, &first, 1, stream));
  std::printf("without sources: %d\n", cuMemcpyBatchAsync(to, nullptr, sizes, 2, &attributes, &first, 1, stream));
}
[[gnu::noinline]] void fill_device() {
  make_device();
  make_device();
  make_pinned(4096);
  void* block = nullptr;
  SHOW(cudaMalloc(&block, size_t{1} << 40));
}
// The simulator maps pinned memory without touching it.
void much_pinned(size_t bytes) {
  for (int i = 0; i < 3; ++i) {
    void* block = nullptr;
    SHOW(cudaMallocHost(&block, bytes));
  }
}

struct Case {
  const char* name;
  void (*run)();
};
constexpr Case kCases[] = {{"device_twice", device_twice},
                           {"device_twice_ordered", device_twice_ordered},
                           {"pinned_twice", pinned_twice},
                           {"small_pinned_twice", small_pinned_twice},
                           {"wild", wild},
                           {"wild_pinned", wild_pinned},
                           {"inside_device", inside_device},
                           {"inside_pinned", inside_pinned},
                           {"inside_small_pinned", inside_small_pinned},
                           {"pinned_by_free", pinned_by_free},
                           {"small_pinned_by_free", small_pinned_by_free},
                           {"device_by_free_host", device_by_free_host},
                           {"pinned_in_order", pinned_in_order},
                           {"small_pinned_in_order", small_pinned_in_order},
                           {"managed_twice", managed_twice},
                           {"after_reset", after_reset},
                           {"used_after_free", used_after_free},
                           {"used_in_child", used_in_child},
                           {"used_as_any_memory", used_as_any_memory},
                           {"fill_device", fill_device}};

}  // namespace

int main(int argc, char** argv) {
  NEED(cudaFree(nullptr));
  if (argc == 3 && !std::strcmp(argv[1], "much_pinned")) return much_pinned(std::strtoull(argv[2], nullptr, 0)), 0;
  for (const Case& one : kCases)
    if (argc == 2 && !std::strcmp(one.name, argv[1])) return one.run(), 0;
  return 2;
}
