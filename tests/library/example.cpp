// A program that links the library: it brings its own OpenCL calls, takes buffers from the pool, and reads the figures.
// Nothing is interposed here: malloc is the C library's, and clCreateBuffer the loader's.
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <cistern/cistern.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "checks.hpp"

namespace {

void host_memory() {
  const cistern_statistics before = statistics(CISTERN_HOST);
  void* block = cistern_allocate(1000, 256);
  check(block && reinterpret_cast<std::uintptr_t>(block) % 256 == 0, "aligned host block");
  const cistern_statistics during = statistics(CISTERN_HOST);
  check(during.allocations == before.allocations + 1, "one host allocation counted");
  check(during.live_bytes >= before.live_bytes + 1000, "its bytes counted");
  check(cistern_deallocate(block) == CISTERN_OK, "deallocate");
  check(statistics(CISTERN_HOST).live_blocks == before.live_blocks, "freed");
  check(!cistern_allocate(SIZE_MAX / 2 + 1, 0), "more than PTRDIFF_MAX fails");
}

void opencl_buffers(const char* report_path) {
  cl_platform_id platform;
  cl_device_id device;
  if (clGetPlatformIDs(1, &platform, nullptr) || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr)) {
    std::printf("no OpenCL device: only host memory shown\n");
    return;
  }
  cl_context context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, nullptr);
  cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, nullptr, nullptr);
  constexpr std::size_t kBytes = 1 << 20;
  std::vector<unsigned char> data(kBytes, 7), back(kBytes);
  for (int round = 0; round < 100; ++round) {
    cl_mem buffer = nullptr;
    check(cistern_opencl_allocate(context, CL_MEM_READ_WRITE, kBytes, &buffer) == CISTERN_OK && buffer, "buffer");
    clEnqueueWriteBuffer(queue, buffer, CL_FALSE, 0, kBytes, data.data(), 0, nullptr, nullptr);
    check(cistern_opencl_deallocate(buffer, queue) == CISTERN_OK, "deallocate");
    if (round % 10 == 0) clFinish(queue);
  }
  clFinish(queue);
  const cistern_statistics figures = statistics(CISTERN_OPENCL);
  check(figures.allocations == 100 && figures.frees == 100 && figures.live_blocks == 0, "exact counts");
  check(figures.pool_hits + figures.pool_misses == 100 && figures.pool_hits >= 50, "most come from the pool");
  check(figures.driver_allocs == figures.pool_misses, "a miss is a driver allocation");

  cl_mem buffer = nullptr;
  check(cistern_opencl_allocate(context, CL_MEM_READ_WRITE, kBytes, nullptr) == CISTERN_INVALID, "nowhere to write");
  check(cistern_opencl_allocate(context, CL_MEM_READ_WRITE, kBytes, &buffer) == CISTERN_OK, "another buffer");
  check(cistern_report(report_path, CISTERN_JSON) == CISTERN_OK, "report on demand");
  check(cistern_report(report_path, CISTERN_JSON) == CISTERN_EXISTS && cistern_native_error() == EEXIST,
        "an existing file is kept");
  check(cistern_opencl_deallocate(buffer, nullptr) == CISTERN_OK, "deallocate an idle buffer");

  check(statistics(CISTERN_OPENCL).pooled_bytes >= kBytes, "kept for reuse");
  check(trim(CISTERN_OPENCL) >= kBytes, "trim gives it back");
  check(statistics(CISTERN_OPENCL).pooled_bytes == 0, "nothing is kept after a trim");
  check(cistern_opencl_allocate(context, CL_MEM_READ_WRITE, 0, &buffer) == CISTERN_INVALID && !buffer, "no bytes");
  check(cistern_native_error() == CL_INVALID_BUFFER_SIZE, "the driver's own code");
  check(cistern_opencl_deallocate(nullptr, nullptr) == CISTERN_INVALID, "no buffer");

  cistern_opencl_forget_context(context);
  cl_uint references = 0;
  clReleaseCommandQueue(queue);
  clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof references, &references, nullptr);
  check(references == 1, "the pool holds nothing of the context");
  clReleaseContext(context);
}

}  // namespace

int main(int argc, char** argv) {
  check(argc == 2, "usage: example REPORT_PATH");
  check(std::strlen(cistern_version()) > 0, "version");
  auto figures = cistern::sized<cistern_statistics>();
  check(cistern_get_statistics(static_cast<cistern_kind>(99), &figures) == CISTERN_INVALID, "no such kind");
  host_memory();
  if (argc == 2) opencl_buffers(argv[1]);
  return say_how_it_went();
}
