// A program that is not linked with OpenCL: every function comes from dlopen, RTLD_LOCAL, and dlsym on that handle;
// the library is loaded again and looked up again, and one look-up fails.
// harness: recycles
#include <dlfcn.h>

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <vector>

static void* library;
template <class Function>
static Function find(Function, const char* name) {
  auto found = reinterpret_cast<Function>(dlsym(library, name));
  if (!found) {
    printf("%s: not found\n", name);
    exit(90);
  }
  return found;
}
#define FIND(name) auto name##_ = find(static_cast<decltype(&name)>(nullptr), #name)

int main() {
  int made = 0;
  for (int load = 0; load < 2; ++load) {
    library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return 91;
    printf("missing function: %s\n", dlsym(library, "clNoSuchFunction") ? "found" : "null");
    FIND(clGetPlatformIDs);
    FIND(clGetDeviceIDs);
    FIND(clCreateContext);
    FIND(clCreateCommandQueueWithProperties);
    FIND(clCreateBuffer);
    FIND(clRetainMemObject);
    FIND(clReleaseMemObject);
    FIND(clGetMemObjectInfo);
    FIND(clEnqueueWriteBuffer);
    FIND(clEnqueueReadBuffer);
    FIND(clReleaseCommandQueue);
    FIND(clReleaseContext);
    cl_platform_id platform = nullptr;
    cl_device_id device = nullptr;
    cl_int code = 0;
    clGetPlatformIDs_(1, &platform, nullptr);
    clGetDeviceIDs_(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr);
    cl_context context = clCreateContext_(nullptr, 1, &device, nullptr, nullptr, &code);
    cl_command_queue queue = clCreateCommandQueueWithProperties_(context, device, nullptr, &code);
    for (uint32_t round = 0; round < 4; ++round) {
      cl_mem buffer = clCreateBuffer_(context, CL_MEM_READ_WRITE, 4096, nullptr, &code);
      made += buffer != nullptr;
      std::vector<uint32_t> words(1024, round), back(1024);
      clEnqueueWriteBuffer_(queue, buffer, CL_TRUE, 0, 4096, words.data(), 0, nullptr, nullptr);
      clEnqueueReadBuffer_(queue, buffer, CL_TRUE, 0, 4096, back.data(), 0, nullptr, nullptr);
      cl_uint count = 0;
      clRetainMemObject_(buffer);
      clGetMemObjectInfo_(buffer, CL_MEM_REFERENCE_COUNT, sizeof count, &count, nullptr);
      clReleaseMemObject_(buffer);
      printf("round %u: %d, same %s, count %u, released %d\n", round, code, words == back ? "yes" : "no", count,
             clReleaseMemObject_(buffer));
    }
    clReleaseCommandQueue_(queue);
    clReleaseContext_(context);
    printf("closed %d\n", dlclose(library));
  }
  printf("memory objects made: %d\n", made);
  return 0;
}
