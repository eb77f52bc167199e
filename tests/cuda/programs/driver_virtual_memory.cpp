// Virtual memory management: reserve, create, map, allow, use, move, unmap, release. The answers for such memory, and
// those of wrong calls on it, are the same with and without the library.
#include "../driver_program.hpp"

namespace {

CUmemAllocationProp on_first_device() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = 0;
  return properties;
}

void allow(CUdeviceptr address, size_t bytes) {
  CUmemAccessDesc access{};
  access.location = on_first_device().location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  SHOW(cuMemSetAccess(address, bytes, &access, 1));
}

// Places are said as units from the start of the reservation: addresses differ between runs.
void say_answers(CUdeviceptr start, size_t unit, CUdeviceptr address) {
  CUdeviceptr base = 0, range_start = 0;
  size_t bytes = 0, range_bytes = 0;
  CUresult code = cuMemGetAddressRange(&base, &bytes, address);
  if (code == CUDA_SUCCESS)
    say("its range begins at unit %zu and has %zu", static_cast<size_t>(base - start) / unit, bytes / unit);
  else
    say("its range: %s", name_of(code));
  NEED(cuPointerGetAttribute(&range_start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address));
  NEED(cuPointerGetAttribute(&range_bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address));
  say("its reservation is this one: %s, of %zu units", yes_no(range_start == start), range_bytes / unit);
  CUcontext context = nullptr;
  SHOW(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address));
  unsigned char shared = 1, mapped = 0;
  NEED(cuPointerGetAttribute(&shared, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address));
  NEED(cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, address));
  say("can be shared by a handle: %s, is mapped: %s", yes_no(shared), yes_no(mapped));
}

void say_wrong_calls(CUdeviceptr address, size_t unit) {
  CUipcMemHandle handle{};
  SHOW(cuMemFree(address));
  SHOW(cuMemFree(address + 512));
  SHOW(cuMemFreeAsync(address, nullptr));
  SHOW(cuIpcGetMemHandle(&handle, address));
  SHOW(cuMemUnmap(address, unit / 2));
  SHOW(cuMemAddressFree(address, 2 * unit));
}

// The two pages change places, as they do when a range is compacted.
void swap_pages(CUdeviceptr address, size_t unit, const CUmemGenericAllocationHandle* handles) {
  NEED(cuMemsetD32(address, 1, unit / 4));
  NEED(cuMemsetD32(address + unit, 2, unit / 4));
  NEED(cuCtxSynchronize());
  for (int i : {0, 1}) SHOW(cuMemUnmap(address + i * unit, unit));
  for (int i : {0, 1}) SHOW(cuMemMap(address + i * unit, unit, 0, handles[1 - i], 0));
  allow(address, 2 * unit);
  say("first %s, second %s", contents(address, unit).c_str(), contents(address + unit, unit).c_str());
}

void one_round(size_t unit) {
  const CUmemAllocationProp properties = on_first_device();
  CUdeviceptr address = 0;
  SHOW(cuMemAddressReserve(&address, 2 * unit, 0, 0, 0));
  CUmemGenericAllocationHandle handles[2];
  for (int i : {0, 1}) {
    SHOW_MADE(vmm, cuMemCreate(&handles[i], unit, &properties, 0));
    SHOW(cuMemMap(address + i * unit, unit, 0, handles[i], 0));
  }
  allow(address, 2 * unit);
  NEED(cuMemsetD32(address, 6, 2 * unit / 4));
  say("holds %s", contents(address, 2 * unit).c_str());
  say_answers(address, unit, address + unit + 100);
  say_wrong_calls(address, unit);
  CUdeviceptr neighbour = device_block(unit);
  NEED(cuMemsetD32(neighbour, 7, unit / 4));
  say("still holds %s", contents(address, 2 * unit).c_str());
  NEED(cuMemFree(neighbour));
  swap_pages(address, unit, handles);
  SHOW(cuMemUnmap(address, 2 * unit));
  for (int i : {0, 1}) SHOW(cuMemRelease(handles[i]));
  SHOW(cuMemAddressFree(address, 2 * unit));
}

}  // namespace

int main() {
  primary_context();
  const CUmemAllocationProp properties = on_first_device();
  size_t unit = 0;
  NEED(cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  for (int round = 0; round < 3; ++round) one_round(unit);
  return finish();
}
