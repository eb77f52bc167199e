// Virtual memory management: reserve, create, map, allow, use, unmap, release; wrong frees of it.
#include "../driver_program.hpp"

int main() {
  primary_context();
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = 0;
  size_t granularity = 0;
  NEED(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  for (int round = 0; round < 3; ++round) {
    CUdeviceptr address = 0;
    SHOW(cuMemAddressReserve(&address, 2 * granularity, 0, 0, 0));
    CUmemGenericAllocationHandle handles[2];
    for (int i : {0, 1}) {
      SHOW_MADE(vmm, cuMemCreate(&handles[i], granularity, &properties, 0));
      SHOW(cuMemMap(address + i * granularity, granularity, 0, handles[i], 0));
    }
    CUmemAccessDesc access{};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    SHOW(cuMemSetAccess(address, 2 * granularity, &access, 1));
    NEED(cuMemsetD32(address, 6, 2 * granularity / 4));
    say("holds %s", contents(address, 2 * granularity).c_str());
    SHOW(cuMemFree(address));
    CUdeviceptr neighbour = device_block(granularity);
    NEED(cuMemsetD32(neighbour, 7, granularity / 4));
    say("still holds %s", contents(address, 2 * granularity).c_str());
    NEED(cuMemFree(neighbour));
    SHOW(cuMemUnmap(address, 2 * granularity));
    for (int i : {0, 1}) SHOW(cuMemRelease(handles[i]));
    SHOW(cuMemAddressFree(address, 2 * granularity));
  }
  return finish();
}
