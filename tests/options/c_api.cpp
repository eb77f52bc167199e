// A program under the shim that finds the C API by dlsym: the functions speak of the pools that its own CUDA calls use.
// Its argument is where a report on demand goes.
#include <cistern/cistern.h>
#include <cuda.h>
#include <dlfcn.h>

#include <cerrno>
#include <cistern/result.hpp>
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
  auto figures = cistern::sized<cistern_statistics>();
  check(SHIM(cistern_get_statistics)(kind, &figures) == CISTERN_OK, "statistics of a kind that exists");
  return figures;
}

size_t trim(cistern_kind kind) {
  size_t returned = 0;
  check(SHIM(cistern_trim)(kind, 0, &returned) == CISTERN_OK, "trimmed");
  return returned;
}

// One pool for both: what one gives back the other gets.
void device_memory() {
  CUdeviceptr own = 0;
  unsigned long long pointer = 0;
  check(!cuMemAlloc(&own, kBytes) && !cuMemFree(own), "the program's own block");
  check(SHIM(cistern_cuda_allocate)(kBytes, &pointer) == CISTERN_OK && pointer == own,
        "the C API gets it from the pool");
  check(cuMemFree(pointer) == CUDA_SUCCESS, "the program frees it");
  check(!cuMemAlloc(&own, kBytes) && own == pointer, "the program gets it again");
  check(SHIM(cistern_cuda_deallocate)(own) == CISTERN_OK, "the C API frees it");
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
  check(trim(CISTERN_PINNED) >= kBytes, "trimmed");
  check(statistics(CISTERN_PINNED).pooled_blocks == 0, "nothing is kept");
  check(statistics(CISTERN_DEVICE).pooled_bytes == kBytes, "device memory is untouched");
}

void other_kinds() {
  check(statistics(CISTERN_HOST).allocations > 0, "host memory is counted");
  check(statistics(CISTERN_OPENCL).allocations == 0, "no OpenCL here");
  auto figures = cistern::sized<cistern_statistics>();
  check(SHIM(cistern_get_statistics)(CISTERN_MANAGED, &figures) == CISTERN_INVALID, "memory that is not pooled");
  check(SHIM(cistern_get_statistics)(CISTERN_DEVICE, nullptr) == CISTERN_INVALID, "nowhere to write");
  check(trim(CISTERN_HOST) == 0, "host memory has no pool");
  size_t returned = 7;
  check(SHIM(cistern_trim)(CISTERN_MANAGED, 0, &returned) == CISTERN_OK && !returned, "nothing to trim");
  check(SHIM(cistern_trim)(static_cast<cistern_kind>(17), 0, nullptr) == CISTERN_INVALID, "no such kind");
  check(SHIM(cistern_defragment)(CISTERN_HOST, nullptr) == CISTERN_OK, "the bytes are not wanted");
}

void reports(const char* path) {
  CUdeviceptr live = 0;
  check(!cuMemAlloc(&live, 3 * kBytes), "a live block");
  check(SHIM(cistern_report)(path, CISTERN_JSON) == CISTERN_OK, "a report on demand");
  check(SHIM(cistern_report)(path, CISTERN_JSON) == CISTERN_EXISTS, "an existing file is kept");
  check(SHIM(cistern_native_error)() == EEXIST, "the system's own code");
  check(SHIM(cistern_report)("/nowhere/report", CISTERN_JSON) == CISTERN_NOT_FOUND, "no such folder");
  check(SHIM(cistern_report)(nullptr, CISTERN_JSON) == CISTERN_INVALID, "no path");
  check(!cuMemFree(live), "freed");
}

cistern_figures figures_of(int device) {
  auto figures = cistern::sized<cistern_figures>();
  check(SHIM(cistern_get_figures)(CISTERN_DEVICE, device, &figures) == CISTERN_OK, "figures");
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
  trim(CISTERN_DEVICE);
  for (int device = 0; device < 2; ++device) {
    check(!cuMemFree(block_on(device, 8 * kBytes)), "freed");
    const cistern_figures figures = figures_of(device);
    check(figures.peak_bytes == 8 * kBytes, "the device's own peak");
    check(figures.worst_reserved_bytes == 8 * kBytes && figures.worst_live_bytes == 0, "all in vain after the free");
    trim(CISTERN_DEVICE);
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
