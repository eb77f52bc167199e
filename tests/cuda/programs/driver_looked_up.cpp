// A client of cuGetProcAddress: every function is asked for by name, version and flags, as the runtime does; what is
// found works, what is not is refused as natively.
// harness: recycles=device
#include "../driver_program.hpp"

using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);

static void* look_up(GetProcAddress get, const char* name, int version, cuuint64_t flags) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  const CUresult code = get(name, &found, version, flags, &status);
  say("%s, version %d, flags %llu: %s, status %d, found %s", name, version, static_cast<unsigned long long>(flags),
      name_of(code), static_cast<int>(status), yes_no(found != nullptr));
  return found;
}

int main() {
  NEED(cuInit(0));
  GetProcAddress get = &cuGetProcAddress;
  for (int version : {11030, 12000}) {
    if (void* found = look_up(get, "cuGetProcAddress", version, 0)) {
      if (version >= 12000) get = reinterpret_cast<GetProcAddress>(found);
    }
  }
  for (int version : {1000, 2000, 3020, 8000, 13000, 99000}) look_up(get, "cuMemAlloc", version, 0);
  look_up(get, "", 0, 0);
  look_up(get, "cuThatNeverWas", 12000, 0);
  look_up(get, "cuMemAlloc_v2", 12000, 0);
  for (cuuint64_t flags : {0, 1, 2, 64}) look_up(get, "cuMemcpyHtoDAsync", 12000, flags);
  auto allocate = reinterpret_cast<CUresult (*)(CUdeviceptr*, size_t)>(look_up(get, "cuMemAlloc", 3020, 0));
  auto release = reinterpret_cast<CUresult (*)(CUdeviceptr)>(look_up(get, "cuMemFree", 3020, 0));
  auto host = reinterpret_cast<CUresult (*)(void**, size_t, unsigned)>(look_up(get, "cuMemHostAlloc", 2020, 0));
  auto host_free = reinterpret_cast<CUresult (*)(void*)>(look_up(get, "cuMemFreeHost", 2000, 0));
  primary_context();
  if (!allocate || !release || !host || !host_free) return 1;
  for (int round = 0; round < 4; ++round) {
    CUdeviceptr block = 0;
    SHOW_MADE(device, allocate(&block, 5000));
    NEED(cuMemsetD8(block, 3, 5000));
    SHOW(round % 2 ? cuMemFree(block) : release(block));
    SHOW(release(block));
    void* pinned = nullptr;
    SHOW_MADE(pinned, host(&pinned, 5000, 0));
    SHOW(round % 2 ? cuMemFreeHost(pinned) : host_free(pinned));
    NEED(cuCtxSynchronize());  // whatever a block waits for is done when the next one is asked for
  }
  return finish();
}
