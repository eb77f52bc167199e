// A program that loads the driver, looks at the devices, and allocates nothing.
#include <dlfcn.h>

#include <cstdio>

int main() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return std::printf("%s\n", dlerror()), 90;
  auto* initialise = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  auto* count_devices = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  int count = 0;
  if (!initialise || !count_devices || initialise(0) || count_devices(&count)) return 91;
  std::printf("%d devices\n", count);
}
