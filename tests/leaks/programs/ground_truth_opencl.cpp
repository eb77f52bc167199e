// OpenCL buffers; argv[1] threads; argv[2] given: a thread sleeps to the end. See ground_truth.hpp.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include "ground_truth.hpp"

namespace {

cl_context context;

[[gnu::noinline]] void* make() {
  cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, 1000, nullptr, nullptr);
  if (!buffer) std::abort();
  return buffer;
}

}  // namespace

int main(int count, char** arguments) {
  cl_platform_id platform;
  cl_device_id device;
  if (clGetPlatformIDs(1, &platform, nullptr) || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr))
    return 77;
  context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, nullptr);
  cl_command_queue queue = clCreateCommandQueue(context, device, 0, nullptr);
  if (!context || !queue) return 1;
  truth::run(std::atoi(arguments[1]), make);
  if (count > 2) std::thread([] { pause(); }).detach();
  truth::wipe_stack();
  truth::end(make);
}
