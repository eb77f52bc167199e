// A block that is freed twice: the native error, and one line that names both sites.
// harness: says=cistern: \w+\(0x\w+\): device block already freed; .*make_it.*, freed at .*free_once.*
// harness: says=cistern: \w+\(0x\w+\): pinned block already freed; .*make_pinned.*, freed at .*free_once.*
#include "../program.hpp"

[[gnu::noinline]] static void* make_it() {
  void* block = nullptr;
  NEED(cudaMalloc(&block, 30000));
  ++made.device;
  return block;
}
[[gnu::noinline]] static void* make_pinned() {
  void* block = nullptr;
  NEED(cudaMallocHost(&block, 30000));
  ++made.pinned;
  return block;
}
[[gnu::noinline]] static void free_once(cudaError_t (*release)(void*), void* block) {
  const cudaError_t code = release(block);
  say("once: %s", name_of(code));
}
[[gnu::noinline]] static void free_again(cudaError_t (*release)(void*), void* block) {
  const cudaError_t code = release(block);
  say("again: %s, last error %s", name_of(code), name_of(cudaGetLastError()));
}

int main() {
  void* block = make_it();
  free_once(cudaFree, block);
  free_again(cudaFree, block);
  void* pinned = make_pinned();
  free_once(cudaFreeHost, pinned);
  free_again(cudaFreeHost, pinned);
  return finish();
}
