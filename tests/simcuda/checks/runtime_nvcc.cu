// A program as nvcc makes them, on the substitute runtime: registration, kernel<<<...>>>, templates, cudaLaunchKernelEx
// and the flavour of default stream it was built for. The kernels' device code is never run; their work is given as host
// functions. Prints what is wrong; the exit code is the number of complaints.
#include <cuda_runtime.h>
#include <stdio.h>

#include "../simcuda.h"

__device__ int never_used;

__global__ void add(int* values, int count, int amount) {
  for (int index = 0; index < count; ++index) values[index] += amount + never_used;
}

template <class Value>
__global__ void fill(Value* value, Value with) {
  *value = with;
}

static void add_work(void** arguments) {
  int* values = *(int**)arguments[0];
  for (int index = 0; index < *(int*)arguments[1]; ++index) values[index] += *(int*)arguments[2];
}

static void fill_work(void** arguments) { **(double**)arguments[0] = *(double*)arguments[1]; }

static int complaints = 0;

static void expect(bool truth, const char* what) {
  if (truth) return;
  printf("wrong: %s (last error %s)\n", what, cudaGetErrorName(cudaPeekAtLastError()));
  ++complaints;
}

static int nested_argument(int* values) {
  add<<<1, 1>>>(values, 1, 100);  // while the configuration of the outer launch is pushed
  return 1;
}

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
static const char* kLaunches = "calls:cuLaunchKernel_ptsz";
#else
static const char* kLaunches = "calls:cuLaunchKernel";
#endif

int main() {
  static const size_t add_bytes[] = {sizeof(int*), sizeof(int), sizeof(int)};
  static const size_t fill_bytes[] = {sizeof(double*), sizeof(double)};
  simcuda_define("add", (const void*)add, add_work, 3, add_bytes);
  simcuda_define("fill<double>", (const void*)fill<double>, fill_work, 2, fill_bytes);

  int* values = nullptr;
  double* value = nullptr;
  expect(cudaMalloc(&values, 10 * sizeof(int)) == cudaSuccess, "cudaMalloc");
  expect(cudaMalloc(&value, sizeof(double)) == cudaSuccess, "cudaMalloc of the second block");
  expect(cudaMemset(values, 0, 10 * sizeof(int)) == cudaSuccess, "cudaMemset");
  long long before = simcuda_value(kLaunches);
  add<<<dim3(2), dim3(32)>>>(values, 10, nested_argument(values));
  fill<<<1, 1>>>(value, 2.5);
  expect(cudaGetLastError() == cudaSuccess, "the launches");
  expect(simcuda_value(kLaunches) == before + 3, kLaunches);

  cudaLaunchConfig_t configuration{};
  configuration.gridDim = dim3(1);
  configuration.blockDim = dim3(1);
  expect(cudaLaunchKernelEx(&configuration, add, values, 10, 1000) == cudaSuccess, "cudaLaunchKernelEx");
  int seen[10];
  double seen_value = 0;
  expect(cudaStreamSynchronize(0) == cudaSuccess, "cudaStreamSynchronize");
  expect(cudaMemcpy(seen, values, sizeof seen, cudaMemcpyDeviceToHost) == cudaSuccess, "copy of the values");
  expect(cudaMemcpy(&seen_value, value, sizeof seen_value, cudaMemcpyDeviceToHost) == cudaSuccess, "copy of the value");
  expect(seen[0] == 1101 && seen[9] == 1001, "the sums");
  expect(seen_value == 2.5, "the filled value");

  fill<<<1, 1>>>(values, 7);
  expect(cudaGetLastError() == cudaErrorInvalidDeviceFunction, "a kernel without a host function is refused");
  expect(cudaFree(values) == cudaSuccess, "cudaFree");
  expect(cudaFree(value) == cudaSuccess, "cudaFree of the second block");
  printf("%s: first %d, last %d, filled %g\n", kLaunches, seen[0], seen[9], seen_value);
  return complaints;
}
