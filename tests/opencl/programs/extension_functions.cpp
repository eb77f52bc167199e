// Functions found by name: which exist and which do not is the implementation's answer. Unified shared memory is
// used where it exists.
#include "observe.hpp"

using HostAlloc = void*(CL_API_CALL*)(cl_context, const cl_bitfield*, size_t, cl_uint, cl_int*);
using MemFree = cl_int(CL_API_CALL*)(cl_context, void*);

int main() {
  Setup cl;
  const char* names[] = {"clHostMemAllocINTEL",
                         "clDeviceMemAllocINTEL",
                         "clSharedMemAllocINTEL",
                         "clMemFreeINTEL",
                         "clMemBlockingFreeINTEL",
                         "clGetMemAllocInfoINTEL",
                         "clSetKernelArgMemPointerINTEL",
                         "clCreateBufferWithPropertiesINTEL",
                         "clCreateCommandQueueWithPropertiesKHR",
                         "clCreateCommandBufferKHR",
                         "clFinalizeCommandBufferKHR",
                         "clReleaseCommandBufferKHR",
                         "clEnqueueCommandBufferKHR",
                         "clCommandCopyBufferKHR",
                         "clCreateFromEGLImageKHR",
                         "clIcdGetPlatformIDsKHR",
                         "clGetPlatformInfo",
                         "clCreateBuffer",
                         "clReleaseMemObject",
                         "clSetContentSizeBufferPoCL",
                         "clNoSuchFunction",
                         ""};
  for (const char* name : names) {
    void* by_platform = clGetExtensionFunctionAddressForPlatform(cl.platform, name);
    void* by_name = clGetExtensionFunctionAddress(name);
    say("'%s': %s by platform, %s by name", name, by_platform ? "found" : "null", by_name ? "found" : "null");
  }
  auto allocate =
      reinterpret_cast<HostAlloc>(clGetExtensionFunctionAddressForPlatform(cl.platform, "clHostMemAllocINTEL"));
  auto release = reinterpret_cast<MemFree>(clGetExtensionFunctionAddressForPlatform(cl.platform, "clMemFreeINTEL"));
  if (allocate && release) {
    cl_int code = 0;
    void* pointer = counted(allocate(cl.context, nullptr, 4096, 0, &code));
    say("host allocation %d %s", code, pointer ? "made" : "null");
    if (pointer) say("freed %d", release(cl.context, pointer));
  }
  // clCreateBuffer by name is the same call as by symbol.
  using CreateBuffer = decltype(&clCreateBuffer);
  auto create = reinterpret_cast<CreateBuffer>(clGetExtensionFunctionAddressForPlatform(cl.platform, "clCreateBuffer"));
  if (create) {
    cl_mem buffer = counted(create(cl.context, 0, 4096, nullptr, nullptr));
    say("created by name: count %u", references(buffer));
    clReleaseMemObject(buffer);
  }
  cl.release();
  return finish();
}
