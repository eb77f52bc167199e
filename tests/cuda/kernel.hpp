// Kernels for the test programs. A kernel is a small struct whose call operator does one index. Under nvcc it runs on
// the device; built with g++ it is a host function, made known to the simulated driver at its first launch, and the
// launch goes through cudaLaunchKernel in both cases.
#pragma once
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstddef>

#include "tests/simcuda/simcuda.h"

#ifdef __CUDACC__
#define ON_BOTH __host__ __device__
template <class Work>
__global__ void kernel(size_t count, Work work) {
  const size_t index = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  if (index < count) work(index);
}
#else
#define ON_BOTH
template <class Work>
void kernel(size_t, Work) {
  abort();  // a stub: only its address is used
}
#endif

template <class Work>
void run_on_host(void** arguments) {
  const size_t count = *static_cast<size_t*>(arguments[0]);
  const Work& work = *static_cast<Work*>(arguments[1]);
  for (size_t index = 0; index < count; ++index) work(index);
}

// Once per kernel and process.
template <class Work>
void define_kernel() {
  static const size_t argument_bytes[] = {sizeof(size_t), sizeof(Work)};
  static const bool defined =
      (simcuda_define(Work::kName, reinterpret_cast<const void*>(&kernel<Work>), &run_on_host<Work>, 2, argument_bytes),
       true);
  (void)defined;
}

template <class Work>
cudaError_t launch(cudaStream_t stream, size_t count, Work work) {
  define_kernel<Work>();
  void* arguments[] = {&count, &work};
  const unsigned threads = 256;
  return cudaLaunchKernel(reinterpret_cast<const void*>(&kernel<Work>),
                          dim3(static_cast<unsigned>((count + threads - 1) / threads)), dim3(threads), arguments, 0,
                          stream);
}

struct Fill {
  static constexpr const char* kName = "fill";
  unsigned* data;
  unsigned value;
  ON_BOTH void operator()(size_t index) const { data[index] = value; }
};

struct Add {
  static constexpr const char* kName = "add";
  unsigned* data;
  unsigned amount;
  ON_BOTH void operator()(size_t index) const { data[index] += amount; }
};

struct Copy {
  static constexpr const char* kName = "copy";
  const unsigned* from;
  unsigned* to;
  ON_BOTH void operator()(size_t index) const { to[index] = from[index]; }
};

// Keeps its stream busy; launched with one index.
struct Spin {
  static constexpr const char* kName = "spin";
  unsigned microseconds;
  ON_BOTH void operator()(size_t) const {
#ifdef __CUDA_ARCH__
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
      asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < microseconds * 1000ull);
#else
    usleep(microseconds);
#endif
  }
};

// Spoils its context: an illegal address on a device; the simulator is told to plant the fault.
struct Fault {
  static constexpr const char* kName = "fault";
  ON_BOTH void operator()(size_t) const {
#ifdef __CUDA_ARCH__
    *reinterpret_cast<volatile unsigned*>(16) = 1;
#endif
  }
};
inline cudaError_t launch_fault(cudaStream_t stream) {
  simcuda_set_value("fault", 1);
  return launch(stream, 1, Fault{});
}
