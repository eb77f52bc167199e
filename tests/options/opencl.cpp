// A program under the shim that watches its own pool through the C API (weak references, so that it runs plain too).
// Arguments are steps: SIZE creates, writes and releases a buffer of SIZE bytes; "sleep" waits 150 ms; "trim=BYTES"
// trims; "pending=COUNT" releases COUNT buffers of 1 MiB behind commands that can't begin yet. After each step it
// prints what is kept.
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <cistern/cistern.h>
#include <unistd.h>

#include <cistern/result.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#pragma weak cistern_get_statistics
#pragma weak cistern_trim

namespace {

void release_pending(cl_context context, cl_device_id device, int count) {
  constexpr size_t kBytes = 1 << 20;
  cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, nullptr, nullptr);
  cl_event gate = clCreateUserEvent(context, nullptr);
  const int zero = 0;
  for (int i = 0; i < count; ++i) {
    cl_mem buffer = clCreateBuffer(context, 0, kBytes, nullptr, nullptr);
    clEnqueueFillBuffer(queue, buffer, &zero, sizeof zero, 0, kBytes, 1, &gate, nullptr);
    clReleaseMemObject(buffer);
  }
  auto figures = cistern::sized<cistern_statistics>();
  if (cistern_get_statistics) cistern_get_statistics(CISTERN_OPENCL, &figures);
  std::printf("behind the gate: %llu\n", (unsigned long long)figures.pooled_bytes);
  clSetUserEventStatus(gate, CL_COMPLETE);
  clFinish(queue);
  clReleaseEvent(gate);
  clReleaseCommandQueue(queue);
}

}  // namespace

int main(int argc, char** argv) {
  cl_platform_id platform;
  cl_device_id device;
  if (clGetPlatformIDs(1, &platform, nullptr) || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr))
    return 2;
  cl_context context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, nullptr);
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "sleep")) {
      usleep(150'000);
    } else if (!std::strncmp(argv[i], "trim=", 5)) {
      std::size_t returned = 0;
      if (cistern_trim) cistern_trim(CISTERN_OPENCL, std::strtoul(argv[i] + 5, nullptr, 0), &returned);
      std::printf("trimmed %zu\n", returned);
    } else if (!std::strncmp(argv[i], "pending=", 8)) {
      release_pending(context, device, std::atoi(argv[i] + 8));
    } else {
      cl_mem buffer = clCreateBuffer(context, 0, std::strtoul(argv[i], nullptr, 0), nullptr, nullptr);
      clReleaseMemObject(buffer);
    }
    auto figures = cistern::sized<cistern_statistics>();
    if (cistern_get_statistics) cistern_get_statistics(CISTERN_OPENCL, &figures);
    std::printf("%s: kept %llu in %llu, largest %llu\n", argv[i], (unsigned long long)figures.pooled_bytes,
                (unsigned long long)figures.pooled_blocks, (unsigned long long)figures.largest_pooled_bytes);
  }
  clReleaseContext(context);
}
