// As unknown_to_runtime, by cuGetProcAddress and by dlsym, in the driver's own handle and in the global order.
// harness: unknown=cuMemInvent,cuMemPrefetchAsync_v3,cuMemPrefetchAsync of CUDA 14.0
// harness: simulator-only
#include <dlfcn.h>

#include "../driver_program.hpp"

static void ask(const char* name, int version) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status{};
  const CUresult code = cuGetProcAddress(name, &function, version, 0, &status);
  say("%s of %d: %s, found %s", name, version, name_of(code), yes_no(function != nullptr));
}

int main() {
  primary_context();
  NEED(cuMemFree(device_block(1000)));
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY);
  for (const char* name : {"cuMemInvent", "cuDeviceGetName", "cuThatNeverWas", "cuTexObjectCreate", "cuMemAlloc_v2"})
    say("%s: %s", name, yes_no(dlsym(driver, name) != nullptr));
  say("cuMemPrefetchAsync_v3: %s", yes_no(dlsym(RTLD_DEFAULT, "cuMemPrefetchAsync_v3") != nullptr));
  ask("cuMemInvent", 14000);
  ask("cuMemPrefetchAsync", 14000);
  ask("cuMemPrefetchAsync", 13000);
  ask("cuThatNeverWas", 14000);
  ask("cuMemAlloc", 14000);
  return finish();
}
