// unified [ROUNDS]: a buffer that is written on the host, worked on by a device and read on the host again: unified
// buffers beside copies written by hand, all of it and a sixteenth. Microseconds of the process's processor time per
// round, the least of interleaved batches; OpenCL, and CUDA where there is a driver (the simulated one by
// LD_LIBRARY_PATH). Host memory is page-locked with CUDA.
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <cuda.h>
#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <cistern/unified_buffer.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

namespace {

double processor_us() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

void demand(bool is_so, const char* what) {
  if (is_so) return;
  fprintf(stderr, "unified: %s\n", what);
  exit(1);
}

// One round: `bytes` of a buffer on the host and back.
struct Way {
  const char* name;
  std::function<void(std::size_t bytes)> round;
  double least_us = 1e18;
};

void measure(const char* driver, std::size_t bytes, std::vector<Way> ways, int batches) {
  constexpr int kRounds = 20;
  for (int batch = 0; batch < batches; ++batch)
    for (Way& way : ways) {
      const bool in_part = strstr(way.name, "part");
      const double began = processor_us();
      for (int i = 0; i < kRounds; ++i) way.round(in_part ? bytes / 16 : bytes);
      way.least_us = std::min(way.least_us, (processor_us() - began) / kRounds);
    }
  for (const Way& way : ways) printf("%-7s %6zu KiB  %-20s %10.2f us\n", driver, bytes >> 10, way.name, way.least_us);
  printf("%-7s %6zu KiB  unified / by hand    %10.3f   part %.3f\n", driver, bytes >> 10,
         ways[1].least_us / ways[0].least_us, ways[3].least_us / ways[2].least_us);
}

void round_of(cistern::unified_buffer<char>& buffer, cistern::stream on, std::size_t bytes) {
  const cistern::part some{0, bytes};
  memset(buffer.host_overwrite(some).value().data(), 1, bytes);
  demand(bool(buffer.device_mut(on, some)), "device_mut");
  demand(buffer.host(some).value()[bytes - 1] == 1, "contents");
}

void measure_opencl(std::size_t bytes, int batches) {
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  cl_int error = 0;
  demand(!clGetPlatformIDs(1, &platform, nullptr) && !clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr),
         "no OpenCL");
  static cl_context const context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &error);
  static cl_command_queue const queue = clCreateCommandQueueWithProperties(context, device, nullptr, &error);
  cl_mem const memory = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, nullptr, &error);
  demand(memory, "clCreateBuffer");
  std::vector<char> host(bytes);
  const auto by_hand = [&](std::size_t count) {
    memset(host.data(), 1, count);
    clEnqueueWriteBuffer(queue, memory, CL_FALSE, 0, count, host.data(), 0, nullptr, nullptr);
    clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, count, host.data(), 0, nullptr, nullptr);
    demand(host[count - 1] == 1, "contents");
  };
  auto* const on = reinterpret_cast<_cl_command_queue*>(queue);
  auto buffer = cistern::unified_buffer<char>::make(
                    bytes, cistern::on_opencl(reinterpret_cast<_cl_context*>(context), on), {.checked = false})
                    .value();
  const auto unified = [&](std::size_t count) { round_of(buffer, on, count); };
  measure("OpenCL", bytes,
          {{"by hand", by_hand}, {"unified", unified}, {"by hand, part", by_hand}, {"unified, part", unified}},
          batches);
  clReleaseMemObject(memory);
}

bool measure_cuda(std::size_t bytes, int batches) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!driver) return false;
  const auto find = [driver]<class Function>(Function** function, const char* name) {
    *function = reinterpret_cast<Function*>(dlsym(driver, name));
    demand(*function, name);
  };
  decltype(cuInit)* initialise;
  decltype(cuDevicePrimaryCtxRetain)* retain;
  decltype(cuCtxSetCurrent)* set_current;
  decltype(cuMemAlloc)* allocate;
  decltype(cuMemFree)* free_device;
  decltype(cuMemHostAlloc)* allocate_host;
  decltype(cuMemFreeHost)* free_host;
  decltype(cuMemcpyHtoDAsync)* to_device;
  decltype(cuMemcpyDtoHAsync)* to_host;
  decltype(cuStreamCreate)* create;
  decltype(cuStreamSynchronize)* synchronize;
  find(&initialise, "cuInit");
  find(&retain, "cuDevicePrimaryCtxRetain");
  find(&set_current, "cuCtxSetCurrent");
  find(&allocate, "cuMemAlloc_v2");
  find(&free_device, "cuMemFree_v2");
  find(&allocate_host, "cuMemHostAlloc");
  find(&free_host, "cuMemFreeHost");
  find(&to_device, "cuMemcpyHtoDAsync_v2");
  find(&to_host, "cuMemcpyDtoHAsync_v2");
  find(&create, "cuStreamCreate");
  find(&synchronize, "cuStreamSynchronize");
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr memory = 0;
  void* host = nullptr;
  demand(!initialise(0) && !retain(&context, 0) && !set_current(context), "no context");
  demand(!create(&stream, CU_STREAM_NON_BLOCKING) && !allocate(&memory, bytes) && !allocate_host(&host, bytes, 0),
         "no memory");
  auto* const at = static_cast<char*>(host);
  const auto by_hand = [&](std::size_t count) {
    memset(at, 1, count);
    to_device(memory, at, count, stream);
    to_host(at, memory, count, stream);
    synchronize(stream);
    demand(at[count - 1] == 1, "contents");
  };
  auto buffer =
      cistern::unified_buffer<char>::make(bytes, cistern::on_device(), {.pin = CISTERN_PIN_AT_ONCE, .checked = false})
          .value();
  const auto unified = [&](std::size_t count) { round_of(buffer, stream, count); };
  measure("CUDA", bytes,
          {{"by hand", by_hand}, {"unified", unified}, {"by hand, part", by_hand}, {"unified, part", unified}},
          batches);
  free_device(memory);
  free_host(host);
  return true;
}

}  // namespace

int main(int count, char** arguments) {
  const int batches = count > 1 ? atoi(arguments[1]) : 50;
  for (const std::size_t bytes : {64u << 10, 1u << 20, 16u << 20}) {
    measure_opencl(bytes, batches);
    if (!measure_cuda(bytes, batches)) printf("CUDA    no driver\n");
  }
}
