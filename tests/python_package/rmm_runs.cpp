// Cistern's resource under RMM's own pool and adaptor, which are headers up to RMM 25.10: run on the simulated driver
// and the substitute runtime. Prints what RMM counted beside what Cistern's pool did.
#include <cuda.h>
#include <rmm/mr/device/pool_memory_resource.hpp>
#include <rmm/mr/device/statistics_resource_adaptor.hpp>

#include <cistern/cuda_resource.hpp>
#include <cstdio>

int main() {
  CUcontext context;
  if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
  cistern_pool_settings settings{};
  settings.struct_bytes = sizeof settings;
  settings.name = "rmm";
  settings.kind = CISTERN_DEVICE;
  cistern_pool* of_cistern = nullptr;
  if (cistern_pool_create(&settings, &of_cistern)) return 1;
  cistern::device_resource memory(of_cistern);
  rmm::mr::statistics_resource_adaptor<cistern::device_resource> counted(&memory);
  rmm::mr::pool_memory_resource<decltype(counted)> pool(&counted, 1 << 20, 8 << 20);
  void* const block = pool.allocate(3000);
  void* const large = pool.allocate(3 << 20);
  auto ours = cistern::sized<cistern_pool_statistics>();
  cistern_pool_get_statistics(of_cistern, &ours);
  std::printf("rmm %lld bytes, cistern %llu bytes in %llu blocks\n", (long long)counted.get_bytes_counter().value,
              (unsigned long long)ours.live_bytes, (unsigned long long)ours.live_blocks);
  pool.deallocate(block, 3000);
  pool.deallocate(large, 3 << 20);
  return block && large ? 0 : 1;
}
