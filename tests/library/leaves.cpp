// A program that links the library and leaves a buffer behind.
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <cistern/cistern.h>

namespace {

[[gnu::noinline]] cl_mem leave_buffer(cl_context context) {
  cl_mem buffer = cistern_opencl_allocate(context, CL_MEM_READ_WRITE, 1 << 20, nullptr);
  asm volatile("" : : "r"(buffer) : "memory");
  return buffer;
}

}  // namespace

int main() {
  cl_platform_id platform;
  cl_device_id device;
  if (clGetPlatformIDs(1, &platform, nullptr) || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr))
    return 2;
  cl_context context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, nullptr);
  return leave_buffer(context) ? 0 : 1;
}
