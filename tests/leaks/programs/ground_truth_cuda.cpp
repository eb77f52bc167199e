// CUDA memory; argv[1] threads, argv[2] device, pinned, managed or async. See ground_truth.hpp.
#include <cuda_runtime_api.h>

#include "ground_truth.hpp"

namespace {

[[gnu::noinline]] void* make_device() {
  void* block = nullptr;
  if (cudaMalloc(&block, 3000)) std::abort();
  return static_cast<char*>(block) + 1000;  // any address inside will do
}
[[gnu::noinline]] void* make_pinned() {
  void* block = nullptr;
  if (cudaMallocHost(&block, 3000)) std::abort();
  std::memset(block, 0, 3000);
  return block;
}
[[gnu::noinline]] void* make_managed() {
  void* block = nullptr;
  if (cudaMallocManaged(&block, 3000, cudaMemAttachGlobal)) std::abort();
  return block;
}
[[gnu::noinline]] void* make_async() {
  void* block = nullptr;
  if (cudaMallocAsync(&block, 3000, nullptr)) std::abort();
  return block;
}

// Device memory whose address lies only in pinned memory that is kept, and in some that is lost.
void* volatile* volatile holder;
[[gnu::noinline]] void** reachable_holder() {
  MADE(1);
  return static_cast<void**>(make_pinned());
}
[[gnu::noinline]] void** lost_holder() {
  MADE(1);
  return static_cast<void**>(make_pinned());
}
[[gnu::noinline]] void* reachable_in_pinned() {
  MADE(1);
  return make_device();
}
[[gnu::noinline]] void* indirect_in_pinned() {
  MADE(1);
  return make_device();
}

[[gnu::noinline]] void fill() {
  holder = reachable_holder();
  holder[100] = reachable_in_pinned();
  *lost_holder() = indirect_in_pinned();
}

}  // namespace

int main(int, char** arguments) {
  const std::string kind = arguments[2];
  void* (*const make)() = kind == "device"   ? make_device
                          : kind == "pinned" ? make_pinned
                          : kind == "async"  ? make_async
                                             : make_managed;
  truth::run(std::atoi(arguments[1]), make);
  fill();
  truth::wipe_stack();
  truth::end(make);
}
