// Asks little of the driver: buffers made, written, read and released, by two threads at once. `needs_little SLOT`: the
// driver has nothing in that slot of its table.
#include <CL/cl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace {

std::atomic<bool> failed{false};

void need(bool good, const char* what) {
  if (good) return;
  printf("failed: %s\n", what);
  failed = true;
}
#define NEED(call) need((call) == CL_SUCCESS, #call)

void take_out(cl_platform_id platform, size_t slot) {
  void** const place = *reinterpret_cast<void***>(platform) + slot;
  const auto page = static_cast<uintptr_t>(getpagesize());
  mprotect(reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(place) & ~(page - 1)), page, PROT_READ | PROT_WRITE);
  *place = nullptr;
}

void work(cl_context context, cl_device_id device) {
  constexpr size_t kBytes = size_t{1} << 20;
  cl_int error = CL_SUCCESS;
  cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, nullptr, &error);
  NEED(error);
  std::vector<unsigned> there(kBytes / sizeof(unsigned)), back(there.size());
  for (unsigned round = 1; round <= 3; ++round) {
    for (size_t i = 0; i < there.size(); ++i) there[i] = static_cast<unsigned>(i) * round;
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, kBytes, nullptr, &error);
    NEED(error);
    NEED(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, kBytes, there.data(), 0, nullptr, nullptr));
    NEED(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, kBytes, back.data(), 0, nullptr, nullptr));
    need(there == back, "contents");
    NEED(clReleaseMemObject(buffer));
  }
  NEED(clReleaseCommandQueue(queue));
}

}  // namespace

int main(int count, char** arguments) {
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  cl_int error = CL_SUCCESS;
  NEED(clGetPlatformIDs(1, &platform, nullptr));
  NEED(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr));
  if (count > 1) take_out(platform, strtoul(arguments[1], nullptr, 10));
  cl_context context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &error);
  NEED(error);
  std::thread other(work, context, device);
  work(context, device);
  other.join();
  NEED(clReleaseContext(context));
  if (failed) return 1;
  puts("all is as it should be");
  return 0;
}
