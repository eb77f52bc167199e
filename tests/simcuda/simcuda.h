// What a test program says to the simulated CUDA driver: the work of its kernels, settings and counters. C and C++.
// Nothing here needs the simulator: with a real driver, or none, the helpers at the end do nothing and answer -1.
#ifndef CISTERN_TESTS_SIMCUDA_H
#define CISTERN_TESTS_SIMCUDA_H
#include <dlfcn.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// The work of a kernel, called once per launch on the stream's worker; arguments as cudaLaunchKernel's: pointers to
// copies of the arguments.
typedef void (*simcuda_work)(void** arguments);

struct simcuda_kernel {
  const char* name;  // for cuModuleGetFunction
  const void* stub;  // the pointer that the program passes to cudaLaunchKernel
  simcuda_work work;
  int argument_count;
  const size_t* argument_bytes;
};

// Exported by the simulated libcuda.so.1. A definition is copied, its strings too; a later one of the same name or stub
// takes the place of the earlier.
__attribute__((weak)) void simcuda_define_kernel(const struct simcuda_kernel* kernel);
__attribute__((weak)) const struct simcuda_kernel* simcuda_find_kernel_by_stub(const void* stub);
// Settings and counters are listed in driver/settings.hpp. 0: known setting; -1: unknown.
__attribute__((weak)) int simcuda_set(const char* setting, long long value);
__attribute__((weak)) long long simcuda_get(const char* setting_or_counter);

// The simulator's function of that name, or null. The driver is loaded here if it is not yet: a program defines its
// kernels before its first CUDA call.
static inline void* simcuda_function(const char* name) {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  return driver ? dlsym(driver, name) : NULL;
}

static inline void simcuda_define(const char* name, const void* stub, simcuda_work work, int argument_count,
                                  const size_t* argument_bytes) {
  struct simcuda_kernel kernel;
  void (*define)(const struct simcuda_kernel*);
  *(void**)(&define) = simcuda_function("simcuda_define_kernel");
  kernel.name = name;
  kernel.stub = stub;
  kernel.work = work;
  kernel.argument_count = argument_count;
  kernel.argument_bytes = argument_bytes;
  if (define) define(&kernel);
}

static inline int simcuda_set_value(const char* setting, long long value) {
  int (*set)(const char*, long long);
  *(void**)(&set) = simcuda_function("simcuda_set");
  return set ? set(setting, value) : -1;
}

static inline long long simcuda_value(const char* setting_or_counter) {
  long long (*get)(const char*);
  *(void**)(&get) = simcuda_function("simcuda_get");
  return get ? get(setting_or_counter) : -1;
}

#ifdef __cplusplus
}
#endif
#endif
