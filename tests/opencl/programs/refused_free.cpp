// A free of unified shared memory that the driver refuses, in a context that it is not of: the memory is alive, and a
// leak where nobody frees it after that.
// harness: leaks=1
// harness: driver-layer
#include "observe.hpp"

using HostAlloc = void*(CL_API_CALL*)(cl_context, const cl_bitfield*, size_t, cl_uint, cl_int*);
using MemFree = cl_int(CL_API_CALL*)(cl_context, void*);

int main() {
  Setup cl;
  cl_context other = clCreateContext(nullptr, 1, &cl.device, nullptr, nullptr, nullptr);
  auto allocate =
      reinterpret_cast<HostAlloc>(clGetExtensionFunctionAddressForPlatform(cl.platform, "clHostMemAllocINTEL"));
  auto release = reinterpret_cast<MemFree>(clGetExtensionFunctionAddressForPlatform(cl.platform, "clMemFreeINTEL"));
  cl_int code = 0;
  void* kept = counted(allocate(cl.context, nullptr, 4096, 0, &code));
  void* freed = counted(allocate(cl.context, nullptr, 4096, 0, &code));
  say("made %d, refused %d", code, release(other, kept) != CL_SUCCESS);
  say("freed %d", release(cl.context, freed));
  clReleaseContext(other);
  cl.release();
  return finish();
}
