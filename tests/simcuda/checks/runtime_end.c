// A destructor of the program that runs after the runtime's own (in the archive, those of the default priority come
// first) is told that the runtime is gone. Also: a C program links the archive without the C++ library.
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <unistd.h>

static void* pointer;

__attribute__((destructor(101))) static void late(void) {
  cudaError_t error = cudaFree(pointer);
  if (error == cudaErrorCudartUnloading) return;
  printf("a late cudaFree answered %d\n", (int)error);
  fflush(stdout);
  _exit(1);
}

int main(void) { return cudaMalloc(&pointer, 100); }
