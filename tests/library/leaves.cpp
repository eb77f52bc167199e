// A program that links the library and leaves a buffer behind, and a block in a pool of its own.
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <cistern/cistern.h>

namespace {

[[gnu::noinline]] cl_mem leave_buffer(cl_context context) {
  cl_mem buffer = nullptr;
  cistern_opencl_allocate(context, CL_MEM_READ_WRITE, 1 << 20, &buffer);
  asm volatile("" : : "r"(buffer) : "memory");
  return buffer;
}

bool use_pools() {
  cistern_pool_settings settings{};
  settings.struct_bytes = sizeof settings;
  settings.name = "weights";
  settings.bytes_max = 1 << 20;
  cistern_pool *weights = nullptr, *scratch = nullptr;
  if (cistern_pool_create(&settings, &weights)) return false;
  settings.name = "scratch\n";
  settings.bytes_max = 0;
  if (cistern_pool_create(&settings, &scratch)) return false;
  void *left = nullptr, *given = nullptr, *refused = nullptr;
  const bool ok = !cistern_pool_allocate(weights, 700'000, 64, &left) &&
                  cistern_pool_allocate(weights, 700'000, 64, &refused) == CISTERN_LIMIT &&
                  !cistern_pool_allocate(scratch, 5000, 0, &given) && !cistern_pool_deallocate(scratch, given, nullptr);
  return ok && !cistern_pool_destroy(scratch);
}

}  // namespace

// With arguments: options by call, name and value.
int main(int count, char** arguments) {
  for (int i = 1; i + 1 < count; i += 2)
    if (cistern_set_option(arguments[i], arguments[i + 1])) return 4;
  if (!use_pools()) return 3;
  cl_platform_id platform;
  cl_device_id device;
  if (clGetPlatformIDs(1, &platform, nullptr) || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr))
    return 2;
  cl_context context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, nullptr);
  return leave_buffer(context) ? 0 : 1;
}
