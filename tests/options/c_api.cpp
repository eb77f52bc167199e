// A program under the shim that finds the C API by dlsym: the functions speak of the pools that its own CUDA calls use.
// Its argument is where a report on demand goes.
#include <cistern/cistern.h>
#include <cuda.h>
#include <dlfcn.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr size_t kBytes = 1 << 20;
int failures = 0;

void check(bool ok, const char* what) {
  if (ok) return;
  std::printf("FAILED: %s\n", what);
  ++failures;
}

template <class Function>
Function* shim_function(const char* name) {
  auto* found = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  if (found) return found;
  std::printf("FAILED: no %s\n", name);
  std::exit(1);
}
#define SHIM(name) shim_function<decltype(name)>(#name)

cistern_statistics statistics(cistern_kind kind) {
  cistern_statistics figures{};
  check(SHIM(cistern_get_statistics)(kind, &figures) == 0, "statistics of a kind that exists");
  return figures;
}

// One pool for both: what one gives back the other gets.
void device_memory() {
  CUdeviceptr own = 0;
  unsigned long long pointer = 0;
  check(!cuMemAlloc(&own, kBytes) && !cuMemFree(own), "the program's own block");
  check(SHIM(cistern_cuda_allocate)(&pointer, kBytes) == 0 && pointer == own, "the C API gets it from the pool");
  check(cuMemFree(pointer) == CUDA_SUCCESS, "the program frees it");
  check(!cuMemAlloc(&own, kBytes) && own == pointer, "the program gets it again");
  check(SHIM(cistern_cuda_deallocate)(own) == 0, "the C API frees it");
  const cistern_statistics figures = statistics(CISTERN_DEVICE);
  check(figures.allocations == 3 && figures.frees == 3 && figures.pool_hits == 2, "all are counted together");
  check(figures.driver_allocs == 1 && figures.pooled_bytes == kBytes, "one driver allocation");
}

void pinned_memory() {
  void *large = nullptr, *small = nullptr;
  check(!cuMemHostAlloc(&large, kBytes, 0) && !cuMemHostAlloc(&small, 100, 0), "pinned blocks");
  check(statistics(CISTERN_PINNED).live_bytes == kBytes + 100, "their bytes as asked for");
  check(!cuMemFreeHost(large) && !cuMemFreeHost(small), "freed");
  const cistern_statistics figures = statistics(CISTERN_PINNED);
  check(figures.allocations == 2 && figures.live_blocks == 0 && figures.pooled_blocks == 2, "both are kept");
  check(figures.largest_pooled_bytes == kBytes, "the largest");
  check(SHIM(cistern_trim)(CISTERN_PINNED, 0) >= kBytes, "trimmed");
  check(statistics(CISTERN_PINNED).pooled_blocks == 0, "nothing is kept");
  check(statistics(CISTERN_DEVICE).pooled_bytes == kBytes, "device memory is untouched");
}

void other_kinds() {
  check(statistics(CISTERN_HOST).allocations > 0, "host memory is counted");
  check(statistics(CISTERN_OPENCL).allocations == 0, "no OpenCL here");
  check(SHIM(cistern_get_statistics)(static_cast<cistern_kind>(4), nullptr) == -1, "no such kind");
  check(SHIM(cistern_get_statistics)(CISTERN_DEVICE, nullptr) == -1, "nowhere to write");
  check(SHIM(cistern_trim)(CISTERN_HOST, 0) == 0, "host memory has no pool");
}

void reports(const char* path) {
  CUdeviceptr live = 0;
  check(!cuMemAlloc(&live, 3 * kBytes), "a live block");
  check(SHIM(cistern_report)(path, CISTERN_JSON) == 0, "a report on demand");
  check(SHIM(cistern_report)(path, CISTERN_JSON) == EEXIST, "an existing file is kept");
  check(!cuMemFree(live), "freed");
}

cistern_figures figures_of(int device) {
  cistern_figures figures{};
  check(SHIM(cistern_get_figures)(CISTERN_DEVICE, device, &figures, sizeof figures) == CISTERN_OK, "figures");
  return figures;
}

CUdeviceptr block_on(int device, size_t bytes) {
  CUcontext context = nullptr;
  CUdeviceptr block = 0;
  check(!cuDevicePrimaryCtxRetain(&context, device) && !cuCtxSetCurrent(context), "a context");
  check(!cuMemAlloc(&block, bytes), "a block");
  return block;
}

// What devices held one after the other was never held together.
void peaks_of_devices() {
  SHIM(cistern_trim)(CISTERN_DEVICE, 0);
  for (int device = 0; device < 2; ++device) {
    check(!cuMemFree(block_on(device, 8 * kBytes)), "freed");
    const cistern_figures figures = figures_of(device);
    check(figures.peak_bytes == 8 * kBytes, "the device's own peak");
    check(figures.worst_reserved_bytes == 8 * kBytes && figures.worst_live_bytes == 0, "all in vain after the free");
    SHIM(cistern_trim)(CISTERN_DEVICE, 0);
  }
  check(statistics(CISTERN_DEVICE).peak_bytes == 8 * kBytes, "the peak of all devices");
  check(figures_of(-1).peak_bytes == 8 * kBytes, "the same in the figures");
  check(figures_of(-1).reserved_peak_bytes == 8 * kBytes, "what the pool had of the driver");
  const CUdeviceptr first = block_on(0, 6 * kBytes), second = block_on(1, 6 * kBytes);
  check(figures_of(-1).peak_bytes == 12 * kBytes, "what both hold at one time is added up");
  check(figures_of(-1).reserved_peak_bytes == 12 * kBytes, "and reserve");
  check(!cuMemFree(first) && !cuMemFree(second), "freed");
}

}  // namespace

int main(int argc, char** argv) {
  CUcontext context = nullptr;
  check(argc == 2, "usage: c_api REPORT_PATH");
  check(!cuInit(0) && !cuDevicePrimaryCtxRetain(&context, 0) && !cuCtxSetCurrent(context), "a context");
  device_memory();
  pinned_memory();
  other_kinds();
  reports(argv[1]);
  peaks_of_devices();
  std::printf(failures ? "%d failures\n" : "all right\n", failures);
  return failures != 0;
}
