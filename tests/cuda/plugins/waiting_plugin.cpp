// A library whose constructor and destructor wait for work that another thread does; loaded by waiting_constructor. The
// dynamic linker holds its lock for both.
#include <cuda_runtime_api.h>

extern "C" void do_on_worker(void (*work)());
extern "C" void calls_of_the_program();

// From a module that has not made a call before.
static void calls_of_the_plugin() {
  void* block = nullptr;
  if (cudaMalloc(&block, 5000) != cudaSuccess || cudaFree(block) != cudaSuccess) __builtin_trap();
  if (cudaMallocHost(&block, 5000) != cudaSuccess || cudaFreeHost(block) != cudaSuccess) __builtin_trap();
}

static const struct Waiting {
  Waiting() {
    do_on_worker(calls_of_the_program);
    do_on_worker(calls_of_the_plugin);
  }
  ~Waiting() {
    do_on_worker(calls_of_the_plugin);
    do_on_worker(calls_of_the_program);
  }
} waiting;
