// What a buffer costs a program: create and release untouched, and create, write and release. Run by bench/opencl.py,
// plain and under the shim in turn.
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <benchmark/benchmark.h>

#include <vector>

namespace {

struct Device {
  Device() {
    cl_platform_id platform;
    clGetPlatformIDs(1, &platform, nullptr);
    clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr);
    context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, nullptr);
    queue = clCreateCommandQueueWithProperties(context, device, nullptr, nullptr);
  }
  cl_device_id device;
  cl_context context;
  cl_command_queue queue;
};

Device& device() {
  static Device the_device;
  return the_device;
}

void untouched(benchmark::State& state) {
  cl_context context = device().context;
  const auto bytes = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) {
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, nullptr, nullptr);
    clReleaseMemObject(buffer);
  }
}
BENCHMARK(untouched)->RangeMultiplier(8)->Range(4 << 10, 256 << 20);

void written(benchmark::State& state) {
  cl_context context = device().context;
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<char> data(bytes, 1);
  for (auto _ : state) {
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, nullptr, nullptr);
    clEnqueueWriteBuffer(device().queue, buffer, CL_TRUE, 0, bytes, data.data(), 0, nullptr, nullptr);
    clReleaseMemObject(buffer);
  }
}
BENCHMARK(written)->Arg(1 << 20)->Arg(16 << 20)->Arg(64 << 20)->UseRealTime();

// The floor of `written`: the same write into a buffer that is there already.
void write_alone(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<char> data(bytes, 1);
  cl_mem buffer = clCreateBuffer(device().context, CL_MEM_READ_WRITE, bytes, nullptr, nullptr);
  for (auto _ : state)
    clEnqueueWriteBuffer(device().queue, buffer, CL_TRUE, 0, bytes, data.data(), 0, nullptr, nullptr);
  clReleaseMemObject(buffer);
}
BENCHMARK(write_alone)->Arg(1 << 20)->Arg(16 << 20)->Arg(64 << 20)->UseRealTime();

// As `written`, but nothing waits before the release: the buffer is in use when it is given back.
void written_in_flight(benchmark::State& state) {
  cl_context context = device().context;
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<char> data(bytes, 1);
  int round = 0;
  for (auto _ : state) {
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, nullptr, nullptr);
    clEnqueueWriteBuffer(device().queue, buffer, CL_FALSE, 0, bytes, data.data(), 0, nullptr, nullptr);
    clReleaseMemObject(buffer);
    if (++round % 4 == 0) clFinish(device().queue);
  }
  clFinish(device().queue);
}
BENCHMARK(written_in_flight)->Arg(1 << 20)->Arg(16 << 20)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
