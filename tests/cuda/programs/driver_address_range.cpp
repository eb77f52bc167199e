// cuMemGetAddressRange and the range attributes show the block as the program asked for it, at its start and inside,
// also when the memory was used before for a block of another size.
#include "../driver_program.hpp"

static void show(const char* what, CUdeviceptr block, CUdeviceptr inside, size_t bytes) {
  CUdeviceptr base = 0;
  size_t size = 0;
  const CUresult code = cuMemGetAddressRange(&base, &size, inside);
  say("%s of %zu: %s, base %s, size %zu", what, bytes, name_of(code), yes_no(base == block), size);
  CUdeviceptr start = 0;
  size_t range = 0;
  const CUresult start_code = cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside);
  const CUresult size_code = cuPointerGetAttribute(&range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside);
  say("  attributes: %s %s, %s %zu", name_of(start_code), yes_no(start == block), name_of(size_code), range);
}

int main() {
  primary_context();
  for (size_t bytes : {512u, 4096u, 5000u, 4608u, 1000000u, 1048576u, 3000001u, 2900000u}) {
    CUdeviceptr block = device_block(bytes);
    show("start", block, block, bytes);
    show("inside", block, block + bytes / 2, bytes);
    show("last byte", block, block + bytes - 1, bytes);
    CUdeviceptr base = 0;
    size_t size = 0;
    SHOW(cuMemGetAddressRange(&base, nullptr, block));
    SHOW(cuMemGetAddressRange(nullptr, &size, block));
    NEED(cuMemFree(block));
    SHOW(cuMemGetAddressRange(&base, &size, block));
  }
  void* pinned = nullptr;
  NEED(cuMemHostAlloc(&pinned, 3000, CU_MEMHOSTALLOC_DEVICEMAP));
  ++made.pinned;
  const CUdeviceptr host = reinterpret_cast<CUdeviceptr>(pinned);
  show("pinned", host, host, 3000);
  show("inside pinned", host, host + 1500, 3000);
  NEED(cuMemFreeHost(pinned));
  CUdeviceptr base = 0;
  size_t size = 0;
  SHOW(cuMemGetAddressRange(&base, &size, 4096));
  return finish();
}
