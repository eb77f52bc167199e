// Contexts of each device that there is, and one of all of them, with memory of their own (contexts_tests.py): in the
// I-th of N contexts, each of one device, I + 1 buffers of 1 MiB are alive at once, and one stays; in that of all
// devices one of 4 MiB, which is released. Then the first device has a second context, which keeps 8 MiB.
// harness: leaks=2
#include "observe.hpp"

constexpr size_t kMiB = size_t{1} << 20;

static cl_context context_of(const std::vector<cl_device_id>& devices) {
  cl_int code = 0;
  const cl_context made =
      clCreateContext(nullptr, static_cast<cl_uint>(devices.size()), devices.data(), nullptr, nullptr, &code);
  need(code, "clCreateContext");
  return made;
}

static cl_mem buffer_of(cl_context context, size_t bytes) {
  cl_int code = 0;
  const cl_mem made = counted(clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, nullptr, &code));
  need(code, "clCreateBuffer");
  return made;
}

int main() {
  cl_platform_id platform = nullptr;
  cl_uint count = 0;
  need(clGetPlatformIDs(1, &platform, nullptr), "clGetPlatformIDs");
  need(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count), "clGetDeviceIDs");
  std::vector<cl_device_id> devices(count);
  need(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, devices.data(), nullptr), "clGetDeviceIDs");
  for (size_t i = 0; i < devices.size(); ++i) {
    const cl_context context = context_of({devices[i]});
    std::vector<cl_mem> buffers;
    for (size_t one = 0; one <= i; ++one) buffers.push_back(buffer_of(context, kMiB));
    for (size_t one = 1; one <= i; ++one) clReleaseMemObject(buffers[one]);
    char name[256] = {};
    need(clGetDeviceInfo(devices[i], CL_DEVICE_NAME, sizeof name, name, nullptr), "clGetDeviceInfo");
    say("device: %s", name);
  }
  if (devices.size() > 1) {
    const cl_context all = context_of(devices);
    clReleaseMemObject(buffer_of(all, 4 * kMiB));
    clReleaseContext(all);
  }
  buffer_of(context_of({devices[0]}), 8 * kMiB);
  return finish();
}
