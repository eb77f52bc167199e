// Every way in which the runtime gives memory, each with every legal way to give it back; zero and huge sizes.
// harness: nvcc
#include "../program.hpp"

static void plain_device() {
  void* block = nullptr;
  for (size_t bytes : {1u, 511u, 512u, 513u, 4096u, 1000000u, 8u << 20}) {
    block = nullptr;
    SHOW_MADE(device, cudaMalloc(&block, bytes));
    say("%zu bytes: aligned to 256: %s", bytes, yes_no(reinterpret_cast<uintptr_t>(block) % 256 == 0));
    NEED(cudaMemset(block, 0x11, bytes));
    SHOW(cudaFree(block));
  }
  block = &block;
  SHOW(cudaMalloc(&block, 0));
  say("zero bytes give null: %s", yes_no(block == nullptr));
  SHOW(cudaFree(nullptr));
  SHOW(cudaMalloc(nullptr, 16));
  SHOW(cudaGetLastError());
  SHOW(cudaMalloc(&block, static_cast<size_t>(1) << 50));
  SHOW(cudaPeekAtLastError());
  SHOW(cudaGetLastError());
  SHOW(cudaGetLastError());
  SHOW(cudaMalloc(&block, ~static_cast<size_t>(0)));
  SHOW(cudaGetLastError());
}

static void pitched() {
  void* block = nullptr;
  size_t pitch = 0;
  SHOW_MADE(device, cudaMallocPitch(&block, &pitch, 1000, 100));
  say("pitch %zu", pitch);
  NEED(cudaMemset2D(block, pitch, 0x22, 1000, 100));
  SHOW(cudaFree(block));
  SHOW_MADE(device, cudaMallocPitch(&block, &pitch, 1000, 100));
  SHOW(cudaFree(block));
  cudaPitchedPtr volume{};
  SHOW_MADE(device, cudaMalloc3D(&volume, cudaExtent{300, 20, 10}));
  say("pitch %zu, extent %zu x %zu", volume.pitch, volume.xsize, volume.ysize);
  SHOW(cudaFree(volume.ptr));
  block = nullptr;
  SHOW(cudaMallocPitch(&block, &pitch, 0, 0));
  say("an empty pitched block is null: %s", yes_no(block == nullptr));
  forget_error();
}

static void pinned() {
  void* block = nullptr;
  SHOW_MADE(pinned, cudaMallocHost(&block, 3000));
  memset(block, 1, 3000);
  SHOW(cudaFreeHost(block));
  for (unsigned flags : {cudaHostAllocDefault, cudaHostAllocPortable, cudaHostAllocMapped, cudaHostAllocWriteCombined,
                         cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined}) {
    SHOW_MADE(pinned, cudaHostAlloc(&block, 5000, flags));
    unsigned seen = 0;
    NEED(cudaHostGetFlags(&seen, block));
    void* on_device = nullptr;
    const cudaError_t code = cudaHostGetDevicePointer(&on_device, block, 0);
    // The driver answers the portable bit as others asked for it with whom a small block shares pages.
    const unsigned kept = flags & ~unsigned{cudaHostAllocPortable};
    say("asked for flags %u: the same flags hold: %s; device pointer: %s, same address: %s", flags,
        yes_no((seen & kept) == kept), name_of(code), yes_no(on_device == block));
    memset(block, 2, 5000);
    SHOW(cudaFreeHost(block));
  }
  forget_error();
  SHOW(cudaHostAlloc(&block, 100, 0x4000));
  forget_error();
  block = &block;
  SHOW(cudaMallocHost(&block, 0));
  say("zero bytes give null: %s", yes_no(block == nullptr));
  forget_error();
  SHOW(cudaFreeHost(nullptr));
  forget_error();
}

static void managed() {
  void* block = nullptr;
  SHOW_MADE(managed, cudaMallocManaged(&block, 10000, cudaMemAttachGlobal));
  memset(block, 3, 10000);
  NEED(cudaDeviceSynchronize());
  SHOW(cudaFree(block));
  SHOW(cudaMallocManaged(&block, 0, cudaMemAttachGlobal));
  SHOW(cudaMallocManaged(&block, 100, 77));
  forget_error();
}

static void stream_ordered() {
  cudaStream_t stream = new_stream();
  void* block = nullptr;
  SHOW_MADE(async, cudaMallocAsync(&block, 20000, stream));
  fill(stream, block, 20000, 4);
  SHOW(cudaFreeAsync(block, stream));
  SHOW_MADE(async, cudaMallocAsync(&block, 20000, stream));
  NEED(cudaStreamSynchronize(stream));
  SHOW(cudaFree(block));
  SHOW_MADE(device, cudaMalloc(&block, 20000));
  SHOW(cudaFreeAsync(block, stream));
  SHOW_MADE(async, cudaMallocAsync(&block, 20000, nullptr));
  SHOW(cudaFreeAsync(block, nullptr));
  NEED(cudaStreamSynchronize(stream));
  NEED(cudaDeviceSynchronize());
  NEED(cudaStreamDestroy(stream));
}

static void registered() {
  void* block = aligned_alloc(4096, 16384);
  SHOW_MADE(registered, cudaHostRegister(block, 16384, cudaHostRegisterDefault));
  SHOW(cudaHostRegister(block, 16384, cudaHostRegisterDefault));
  forget_error();
  SHOW(cudaHostUnregister(block));
  SHOW(cudaHostUnregister(block));
  forget_error();
  free(block);
}

static void arrays() {
  const cudaChannelFormatDesc words{32, 0, 0, 0, cudaChannelFormatKindUnsigned};
  cudaArray_t array = nullptr;
  SHOW_MADE(array, cudaMallocArray(&array, &words, 64, 64));
  SHOW(cudaFreeArray(array));
  SHOW_MADE(array, cudaMalloc3DArray(&array, &words, cudaExtent{16, 16, 4}));
  SHOW(cudaFreeArray(array));
  SHOW(cudaFreeArray(nullptr));
  forget_error();
}

int main() {
  SHOW(cudaFree(nullptr));
  plain_device();
  pitched();
  pinned();
  managed();
  stream_ordered();
  registered();
  arrays();
  return finish();
}
