// The pointer of every kind through every free that is wrong for it, twice where that is a double free, and pointers
// inside a block: the native error, the block unharmed. The blocks exist before and after, so nothing is reused
// between the wrong call and the check.
// harness: figures=off
#include "../program.hpp"

static void show_error(const char* what, cudaError_t code) {
  say("%s: %s, last error %s", what, name_of(code), name_of(cudaGetLastError()));
}

static void wrong_for_device(const char* what, void* block) {
  say("-- %s", what);
  show_error("cudaFreeHost", cudaFreeHost(block));
  show_error("cudaHostUnregister", cudaHostUnregister(block));
  show_error("cudaIpcCloseMemHandle", cudaIpcCloseMemHandle(block));
}

static void inside(const char* what, void* block) {
  say("-- inside %s", what);
  char* bytes = static_cast<char*>(block);
  show_error("cudaFree of block + 1", cudaFree(bytes + 1));
  show_error("cudaFree of block + 256", cudaFree(bytes + 256));
  show_error("cudaFreeHost of block + 256", cudaFreeHost(bytes + 256));
}

int main() {
  constexpr size_t kBytes = 8192;
  cudaStream_t stream = new_stream();
  void* device = device_block(kBytes);
  void* managed = nullptr;
  NEED(cudaMallocManaged(&managed, kBytes, cudaMemAttachGlobal));
  ++made.managed;
  void* pinned = pinned_block(kBytes);
  void* ordered = nullptr;
  NEED(cudaMallocAsync(&ordered, kBytes, stream));
  ++made.async;
  NEED(cudaStreamSynchronize(stream));
  fill(nullptr, device, kBytes, 5);
  NEED(cudaDeviceSynchronize());

  wrong_for_device("device", device);
  wrong_for_device("managed", managed);
  wrong_for_device("stream-ordered", ordered);
  say("-- pinned");
  show_error("cudaFree", cudaFree(pinned));
  show_error("cudaHostUnregister", cudaHostUnregister(pinned));
  inside("device", device);
  inside("pinned", pinned);
  say("-- not of CUDA");
  int local = 0;
  void* heap = malloc(100);
  show_error("cudaFree of a local", cudaFree(&local));
  show_error("cudaFree of the heap", cudaFree(heap));
  show_error("cudaFree of 64", cudaFree(reinterpret_cast<void*>(64)));
  show_error("cudaFreeHost of a local", cudaFreeHost(&local));
  show_error("cudaFreeHost of the heap", cudaFreeHost(heap));
  show_error("cudaFreeAsync of the heap", cudaFreeAsync(heap, stream));
  free(heap);

  say("device block holds %s", contents(device, kBytes).c_str());
  say("-- freed once, then again");
  show_error("cudaFree", cudaFree(device));
  show_error("cudaFree", cudaFree(device));
  show_error("cudaFree", cudaFree(device));
  show_error("cudaFreeAsync", cudaFreeAsync(device, stream));
  show_error("cudaFreeHost", cudaFreeHost(pinned));
  show_error("cudaFreeHost", cudaFreeHost(pinned));
  show_error("cudaFree", cudaFree(managed));
  show_error("cudaFree", cudaFree(managed));
  show_error("cudaFree", cudaFree(ordered));
  NEED(cudaDeviceSynchronize());
  show_error("cudaFree of what never was", cudaFree(reinterpret_cast<void*>(0x7000000000)));
  void* again = device_block(kBytes);
  fill(nullptr, again, kBytes, 6);
  say("a new block holds %s", contents(again, kBytes).c_str());
  NEED(cudaFree(again));
  return finish();
}
