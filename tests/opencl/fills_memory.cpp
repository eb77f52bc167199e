// Fills its address space with buffers until one is refused, gives them back, and uses one of twice the size.
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>

#include <cstdio>
#include <vector>

int main() {
  constexpr size_t kBytes = size_t{64} << 20;
  cl_platform_id platform;
  cl_device_id device;
  cl_int code = clGetPlatformIDs(1, &platform, nullptr);
  if (code != CL_SUCCESS) return 90;
  if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr) != CL_SUCCESS) return 91;
  const cl_context context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &code);
  const cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, nullptr, &code);
  if (code != CL_SUCCESS) return 92;
  const char zero = 0;
  std::vector<cl_mem> buffers;
  while (const cl_mem buffer = clCreateBuffer(context, CL_MEM_ALLOC_HOST_PTR, kBytes, nullptr, &code)) {
    buffers.push_back(buffer);
    clEnqueueFillBuffer(queue, buffer, &zero, 1, 0, kBytes, 0, nullptr, nullptr);
    clFinish(queue);
  }
  std::printf("refused with %d\n", code);
  for (const cl_mem buffer : buffers) clReleaseMemObject(buffer);
  clFinish(queue);
  const cl_mem larger = clCreateBuffer(context, 0, 2 * kBytes, nullptr, &code);
  std::printf("a larger one: %d\n", code);
  code = clEnqueueWriteBuffer(queue, larger, CL_TRUE, 0, 1, &zero, 0, nullptr, nullptr);
  std::printf("written: %d\n", code);
}
