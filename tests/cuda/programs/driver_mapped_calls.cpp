// Calls for memory that a program maps itself, asked about memory of cuMemAlloc: each is refused, and the blocks stay
// as they were. With memory of its own beside, each is answered.
#include <vector>

#include "../driver_program.hpp"

namespace {

constexpr size_t kMiB = 1 << 20, kBytes = 4 * kMiB;
constexpr CUmemLocation kHere = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};

void ask(const char* what, CUdeviceptr address, size_t bytes) {
  say("-- %s", what);
  unsigned long long flags = 77;
  const CUresult asked = cuMemGetAccess(&flags, &kHere, address);
  say("access: %s %llu", name_of(asked), flags);
  CUmemGenericAllocationHandle handle = 0;
  const CUresult retained = cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(address));
  say("handle: %s", name_of(retained));
  if (retained == CUDA_SUCCESS) NEED(cuMemRelease(handle));
  const CUmemAccessDesc closed = {kHere, CU_MEM_ACCESS_FLAGS_PROT_READ};
  say("access is set: %s", name_of(cuMemSetAccess(address, bytes, &closed, 1)));
  say("unmapped: %s", name_of(cuMemUnmap(address, bytes)));
  say("addresses are freed: %s", name_of(cuMemAddressFree(address, bytes)));
}

}  // namespace

int main() {
  NEED(cuInit(0));
  CUcontext context;
  NEED(cuDevicePrimaryCtxRetain(&context, 0));
  NEED(cuCtxSetCurrent(context));
  std::vector<CUdeviceptr> blocks(8);
  for (size_t i = 0; i < blocks.size(); ++i) {
    NEED(cuMemAlloc(&blocks[i], kBytes));
    ++made.device;
    NEED(cuMemsetD8(blocks[i], static_cast<unsigned char>(i + 1), kBytes));
  }
  ask("a block", blocks[3], kBytes);
  ask("a block's second half", blocks[4] + kBytes / 2, kBytes / 2);
  ask("what lies around its beginning", blocks[5] / (2 * kMiB) * (2 * kMiB), 2 * kMiB);
  size_t wrong = 0;
  std::vector<unsigned char> contents(kBytes);
  for (size_t i = 0; i < blocks.size(); ++i) {
    NEED(cuMemsetD8(blocks[i], static_cast<unsigned char>(i + 11), kBytes));
    NEED(cuMemcpyDtoH(contents.data(), blocks[i], kBytes));
    for (const unsigned char byte : contents) wrong += byte != i + 11;
  }
  say("wrong bytes: %zu", wrong);

  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = kHere;
  CUmemGenericAllocationHandle memory;
  CUdeviceptr address = 0;
  NEED(cuMemCreate(&memory, kBytes, &properties, 0));
  ++made.vmm;
  NEED(cuMemAddressReserve(&address, kBytes, 0, 0, 0));
  NEED(cuMemMap(address, kBytes, 0, memory, 0));
  ask("memory of the program's", address, kBytes);
  NEED(cuMemRelease(memory));
  for (const CUdeviceptr block : blocks) NEED(cuMemFree(block));
  return finish();
}
