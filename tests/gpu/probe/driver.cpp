// Finds the driver, and gives the probe its two kernels: one that takes time, and one that writes where nothing is.
// On a real driver they are PTX, compiled by the driver; a simulated one is told what they do on the host.
#include "driver.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "probe.hpp"
#include "tests/simcuda/simcuda.h"

namespace probe {
namespace {

constexpr const char* kKernels = R"(.version 6.4
.target sm_70
.address_size 64
.visible .entry probe_spin(.param .u64 nanoseconds)
{
  .reg .u64 %wanted, %start, %now;
  .reg .pred %more;
  ld.param.u64 %wanted, [nanoseconds];
  mov.u64 %start, %globaltimer;
again:
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %start;
  setp.lt.u64 %more, %now, %wanted;
  @%more bra again;
  ret;
}
.visible .entry probe_fault()
{
  .reg .u64 %address;
  .reg .u32 %value;
  mov.u64 %address, 16;
  mov.u32 %value, 1;
  st.global.u32 [%address], %value;
  ret;
}
)";

void simulated_spin(void** values) {
  sleep_milliseconds(static_cast<int>(*static_cast<uint64_t*>(values[0]) / 1'000'000));
}

void simulated_fault(void**) {}

void define_simulated_kernels() {
  static const size_t spin_arguments[] = {sizeof(uint64_t)};
  simcuda_define("probe_spin", reinterpret_cast<const void*>(simulated_spin), simulated_spin, 1, spin_arguments);
  simcuda_define("probe_fault", reinterpret_cast<const void*>(simulated_fault), simulated_fault, 0, nullptr);
}

template <typename Function>
struct Absent;
template <typename... Arguments>
struct Absent<CUresult (*)(Arguments...)> {
  static CUresult call(Arguments...) { return CUDA_ERROR_NOT_FOUND; }
};

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function != nullptr) return;
  detail("absent", {{"name", name}});
  function = Absent<Function>::call;
}

// The name as cuda.h's macros make it.
#define PROBE_EXPORT(name) PROBE_TEXT(name)
#define PROBE_TEXT(name) #name

CUfunction kernel(const char* name) {
  // One module for each context: the primary one is enough for most cases, a second context loads its own.
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  PROBE_MUST(driver().cuModuleLoadData(&module, kKernels));
  PROBE_MUST(driver().cuModuleGetFunction(&function, module, name));
  return function;
}

CUfunction cached_kernel(const char* name, CUcontext& context, CUfunction& function) {
  CUcontext current = nullptr;
  PROBE_MUST(driver().cuCtxGetCurrent(&current));
  if (function == nullptr || context != current) {
    function = kernel(name);
    context = current;
  }
  return function;
}

}  // namespace

const Driver& driver() {
  static const Driver found = [] {
    Driver loaded{};
    loaded.library = dlopen("libcuda.so.1", RTLD_NOW);
    if (loaded.library == nullptr) {
      std::fprintf(stderr, "probe: no driver: %s\n", dlerror());
      std::exit(3);
    }
#define PROBE_FIND(name) find(loaded.library, PROBE_EXPORT(name), loaded.name);
    PROBE_DRIVER_FUNCTIONS(PROBE_FIND)
#undef PROBE_FIND
    find(loaded.library, "cuCtxCreate_v2", loaded.create_context);
    define_simulated_kernels();
    return loaded;
  }();
  return found;
}

CUcontext open_device() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  PROBE_MUST(driver().cuInit(0));
  PROBE_MUST(driver().cuDeviceGet(&device, 0));
  PROBE_MUST(driver().cuDevicePrimaryCtxRetain(&context, device));
  PROBE_MUST(driver().cuCtxSetCurrent(context));
  return context;
}

std::string name_of(CUresult result) { return code_name(static_cast<int>(result)); }

void must(CUresult result, const char* step) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "probe: %s: %s\n", step, name_of(result).c_str());
  std::exit(3);
}

void leave_contexts() {
  CUcontext current = nullptr;
  do {
    PROBE_MUST(driver().cuCtxSetCurrent(nullptr));
    PROBE_MUST(driver().cuCtxGetCurrent(&current));
  } while (current != nullptr);
}

CUdeviceptr allocate(size_t bytes) {
  CUdeviceptr pointer = 0;
  PROBE_MUST(driver().cuMemAlloc(&pointer, bytes));
  return pointer;
}

void* allocate_host(size_t bytes, unsigned flags) {
  void* pointer = nullptr;
  PROBE_MUST(driver().cuMemHostAlloc(&pointer, bytes, flags));
  return pointer;
}

CUstream create_stream(unsigned flags) {
  CUstream stream = nullptr;
  PROBE_MUST(driver().cuStreamCreate(&stream, flags));
  return stream;
}

void keep_busy(CUstream stream, int milliseconds) {
  static CUcontext context = nullptr;
  static CUfunction function = nullptr;
  uint64_t nanoseconds = static_cast<uint64_t>(milliseconds) * 1'000'000;
  void* values[] = {&nanoseconds};
  cached_kernel("probe_spin", context, function);
  PROBE_MUST(driver().cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, values, nullptr));
}

void cause_fault(CUstream stream) {
  const CUfunction function = kernel("probe_fault");
  simcuda_set_value("fault", 1);
  driver().cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
}

}  // namespace probe
