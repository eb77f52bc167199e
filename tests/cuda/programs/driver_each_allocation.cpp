// Every way in which the driver API gives memory, with its frees; zero and huge sizes, flags, wrong frees.
#include "../driver_program.hpp"

static void device() {
  CUdeviceptr block = 0;
  for (size_t bytes : {1u, 512u, 700u, 100000u, 4u << 20}) {
    SHOW_MADE(device, cuMemAlloc(&block, bytes));
    NEED(cuMemsetD8(block, 1, bytes));
    SHOW(cuMemFree(block));
  }
  SHOW(cuMemAlloc(&block, 0));
  SHOW(cuMemAlloc(nullptr, 10));
  SHOW(cuMemAlloc(&block, static_cast<size_t>(1) << 50));
  SHOW(cuMemAlloc(&block, ~static_cast<size_t>(0)));
  SHOW(cuMemFree(0));
  size_t pitch = 0;
  for (unsigned element : {4u, 8u, 16u}) {
    SHOW_MADE(device, cuMemAllocPitch(&block, &pitch, 1000, 20, element));
    say("pitch %zu", pitch);
    SHOW(cuMemFree(block));
  }
  SHOW(cuMemAllocPitch(&block, &pitch, 1000, 20, 3));
}

static void pinned() {
  void* block = nullptr;
  SHOW_MADE(pinned, cuMemAllocHost(&block, 6000));
  memset(block, 1, 6000);
  SHOW(cuMemFreeHost(block));
  for (unsigned asked : {0, CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_WRITECOMBINED}) {
    SHOW_MADE(pinned, cuMemHostAlloc(&block, 6000, asked));
    unsigned flags = 0;
    SHOW(cuMemHostGetFlags(&flags, block));
    // A small block's driver answers what others asked for with which it shares pages (seen: version 580).
    if (asked != CU_MEMHOSTALLOC_PORTABLE) say("asked for %u: held %s", asked, yes_no((flags & asked) == asked));
    CUdeviceptr on_device = 0;
    SHOW(cuMemHostGetDevicePointer(&on_device, block, 0));
    say("same address on the device: %s", yes_no(on_device == reinterpret_cast<CUdeviceptr>(block)));
    SHOW(cuMemFreeHost(block));
  }
  SHOW(cuMemAllocHost(&block, 0));
  SHOW(cuMemHostAlloc(&block, 10, 0x100));
  SHOW(cuMemFreeHost(nullptr));
}

static void wrong_frees() {
  CUdeviceptr block = device_block(8192);
  void* host = nullptr;
  NEED(cuMemHostAlloc(&host, 8192, 0));
  ++made.pinned;
  SHOW(cuMemFreeHost(reinterpret_cast<void*>(block)));
  SHOW(cuMemFree(reinterpret_cast<CUdeviceptr>(host)));
  SHOW(cuMemFree(block + 256));
  SHOW(cuMemFreeHost(static_cast<char*>(host) + 64));
  SHOW(cuMemHostUnregister(host));
  SHOW(cuMemFree(block));
  SHOW(cuMemFree(block));
  SHOW(cuMemFreeHost(host));
  SHOW(cuMemFreeHost(host));
}

static void others() {
  CUdeviceptr block = 0;
  SHOW_MADE(managed, cuMemAllocManaged(&block, 9000, CU_MEM_ATTACH_GLOBAL));
  SHOW(cuMemFree(block));
  SHOW_MADE(async, cuMemAllocAsync(&block, 9000, nullptr));
  SHOW(cuMemFreeAsync(block, nullptr));
  SHOW_MADE(device, cuMemAlloc(&block, 9000));
  SHOW(cuMemFreeAsync(block, nullptr));
  NEED(cuCtxSynchronize());
  void* heap = aligned_alloc(4096, 8192);
  SHOW_MADE(registered, cuMemHostRegister(heap, 8192, CU_MEMHOSTREGISTER_PORTABLE));
  SHOW(cuMemFreeHost(heap));
  SHOW(cuMemHostUnregister(heap));
  free(heap);
  CUDA_ARRAY_DESCRIPTOR flat{};
  flat.Width = flat.Height = 32;
  flat.Format = CU_AD_FORMAT_UNSIGNED_INT32;
  flat.NumChannels = 1;
  CUarray array = nullptr;
  SHOW_MADE(array, cuArrayCreate(&array, &flat));
  SHOW(cuArrayDestroy(array));
}

int main() {
  void* early = nullptr;
  CUdeviceptr before = 0;
  SHOW(cuMemAlloc(&before, 100));  // not initialised
  SHOW(cuMemAllocHost(&early, 100));
  SHOW(cuMemFree(4096));
  NEED(cuInit(0));
  SHOW(cuMemAlloc(&before, 100));  // no context
  primary_context();
  device();
  pinned();
  wrong_frees();
  others();
  return finish();
}
