// A program that links the library and takes CUDA memory from its pool. It is linked neither with the driver nor with
// the runtime: the library loads the driver when it is asked for memory. Nothing is interposed: calls that do not
// name the library are not its affair.
#include <cistern/cistern.h>
#include <cuda.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "checks.hpp"
#include "tests/simcuda/simcuda.h"

namespace {

constexpr size_t kBytes = 1 << 20;

bool nothing_happened(cistern_kind kind) {
  const cistern_statistics figures = statistics(kind), none = cistern::sized<cistern_statistics>();
  return std::memcmp(&figures, &none, sizeof none) == 0;
}

bool fails(cistern_status answer, cistern_status expected, int code) {
  return answer == expected && cistern_native_error() == code;
}

bool is_driver_loaded() { return dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD); }

void before_the_first_call() {
  check(cistern_cuda_deallocate(42) == CISTERN_NO_DRIVER, "nothing was allocated");
  check(cistern_device_count(nullptr) == CISTERN_INVALID, "nowhere to count");
  check(nothing_happened(CISTERN_DEVICE) && nothing_happened(CISTERN_PINNED), "no figures");
  check(trim(CISTERN_DEVICE) == 0 && trim(CISTERN_PINNED) == 0, "nothing to trim");
  check(!is_driver_loaded(), "no driver is loaded for that");
}

bool starts_the_driver() {
  int count = 7;
  check(cistern_device_count(&count) == CISTERN_OK && count == 2, "the devices");
  return is_driver_loaded();
}

void recycles() {
  const std::uint64_t failed = statistics(CISTERN_DEVICE).failed;
  unsigned long long first = 0;
  for (int round = 0; round < 100; ++round) {
    unsigned long long pointer = 0;
    check(cistern_cuda_allocate(kBytes, &pointer) == CISTERN_OK && pointer, "allocate");
    if (!round) first = pointer;
    check(pointer == first, "the same block again");
    check(statistics(CISTERN_DEVICE).live_bytes == kBytes, "live bytes while it is held");
    check(cistern_cuda_deallocate(pointer) == CISTERN_OK, "deallocate");
  }
  const cistern_statistics figures = statistics(CISTERN_DEVICE);
  check(figures.allocations == 100 && figures.frees == 100, "exact counts");
  check(figures.pool_hits == 99 && figures.pool_misses == 1, "one miss");
  check(figures.driver_allocs == 1 && figures.driver_frees == 0, "one driver allocation");
  check(figures.live_blocks == 0 && figures.live_bytes == 0 && figures.peak_bytes == kBytes, "nothing live, the peak");
  check(figures.pooled_blocks == 1 && figures.pooled_bytes == kBytes, "one block is kept");
  check(figures.largest_pooled_bytes == kBytes, "the largest that is kept");
  check(figures.failed == failed, "nothing failed");
  check(simcuda_value("allocs") == 1 && simcuda_value("frees") == 0, "the driver saw one allocation");
}

void trims() {
  unsigned long long blocks[4];
  for (int i = 0; i < 4; ++i) check(!cistern_cuda_allocate(kBytes * (i + 1), &blocks[i]), "allocate several");
  for (unsigned long long block : blocks) check(!cistern_cuda_deallocate(block), "deallocate several");
  check(statistics(CISTERN_DEVICE).pooled_bytes == 10 * kBytes, "all are kept");
  check(trim(CISTERN_DEVICE, 10 * kBytes) == 0, "nothing is above what may stay");
  const std::uint64_t returned = trim(CISTERN_DEVICE, 4 * kBytes), kept = statistics(CISTERN_DEVICE).pooled_bytes;
  check(kept <= 4 * kBytes && returned == 10 * kBytes - kept, "trimmed to what may stay");
  check(trim(CISTERN_PINNED) == 0, "another kind's trim takes nothing");
  check(statistics(CISTERN_DEVICE).pooled_bytes == kept, "and leaves this one's");
  check(trim(CISTERN_DEVICE) == kept, "the rest");
  check(statistics(CISTERN_DEVICE).pooled_blocks == 0, "nothing is kept after a trim");
  check(simcuda_value("live_allocations") == 0, "the driver has everything back");
}

void misuse() {
  const std::uint64_t failed = statistics(CISTERN_DEVICE).failed;
  unsigned long long pointer = 0;
  check(fails(cistern_cuda_allocate(size_t{1} << 45, &pointer), CISTERN_NO_MEMORY, CUDA_ERROR_OUT_OF_MEMORY),
        "too much: the native error");
  check(statistics(CISTERN_DEVICE).failed == failed + 1, "and it is counted");
  check(fails(cistern_cuda_allocate(0, &pointer), CISTERN_INVALID, CUDA_ERROR_INVALID_VALUE),
        "no bytes: the native error");
  check(cistern_cuda_allocate(kBytes, nullptr) == CISTERN_INVALID, "nowhere to write");
  check(cistern_cuda_allocate(kBytes, &pointer) == CISTERN_OK, "allocate after errors");
  check(cistern_cuda_deallocate(pointer) == CISTERN_OK, "deallocate");
  check(fails(cistern_cuda_deallocate(pointer), CISTERN_INVALID, CUDA_ERROR_INVALID_VALUE), "twice: the native error");
  check(cistern_cuda_deallocate(0) == CISTERN_OK, "null is no error, as with the driver");
}

}  // namespace

int main() {
  before_the_first_call();
  if (!starts_the_driver()) return std::printf("FAILED: no simulated driver\n"), 1;
  recycles();
  trims();
  misuse();
  return say_how_it_went();
}
