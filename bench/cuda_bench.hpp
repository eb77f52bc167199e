// What the CUDA benchmarks share: the current context, calls that must succeed, what Cistern says of itself when it is
// there, and the simulated driver's latency when that is the driver.
#pragma once
#include <cuda.h>
#include <dlfcn.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "cistern/result.hpp"
#include "tests/simcuda/simcuda.h"

namespace bench {

using Clock = std::chrono::steady_clock;

inline void must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: CUresult %d\n", what, static_cast<int>(result));
  std::_Exit(1);
}
#define MUST(call) ::bench::must(call, #call)

inline CUcontext primary_context() {
  static const CUcontext context = [] {
    CUcontext primary = nullptr;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&primary, 0));
    return primary;
  }();
  return context;
}

// Zeroes in a plain run.
inline cistern_statistics statistics(cistern_kind kind) {
  static const auto get =
      reinterpret_cast<decltype(&cistern_get_statistics)>(dlsym(RTLD_DEFAULT, "cistern_get_statistics"));
  auto figures = cistern::sized<cistern_statistics>();
  if (get) get(kind, &figures);
  return figures;
}

inline void trim(cistern_kind kind) {
  static const auto give_back = reinterpret_cast<decltype(&cistern_trim)>(dlsym(RTLD_DEFAULT, "cistern_trim"));
  if (give_back) give_back(kind, 0, nullptr);
}

// While it lives the simulated driver's calls cost nothing: for what is not measured. A real driver stays as it is.
class Quick {
 public:
  Quick() {
    for (Setting& setting : settings_) {
      setting.value = simcuda_value(setting.name);
      simcuda_set_value(setting.name, 0);
    }
  }
  ~Quick() {
    for (const Setting& setting : settings_) simcuda_set_value(setting.name, setting.value);
  }
  Quick(const Quick&) = delete;
  Quick& operator=(const Quick&) = delete;

 private:
  struct Setting {
    const char* name;
    long long value = 0;
  };
  Setting settings_[5] = {
      {"latency_ns"}, {"alloc_latency_ns"}, {"free_latency_ns"}, {"sync_latency_ns"}, {"pin_latency_ns_per_mib"}};
};

inline double nanoseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::nano>(duration).count();
}

int mixed(std::uint64_t seed, int threads, int steps);

}  // namespace bench
