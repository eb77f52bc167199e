// A program with three deliberate leaks in two functions, and clean work around them. Each allocation that is never
// freed stands on one line that ends in a comment "leak: NAME"; the check of the report looks these lines up.
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr size_t kWeightBytes = 1 << 20;
constexpr size_t kResultBytes = 256 << 10;
constexpr size_t kPoolBytes = 512 << 10;
constexpr size_t kViewBytes = 64 << 10;

void require(cl_int status, const char* what) {
  if (status == CL_SUCCESS) return;
  std::fprintf(stderr, "%s: error %d\n", what, status);
  std::exit(1);
}

// Each layer's weights replace the last ones without releasing them.
[[gnu::noinline]] int load_weights(cl_context context, cl_command_queue queue) {
  cl_mem weights = nullptr;
  const std::vector<char> bytes(kWeightBytes, 'w');
  int layers = 0;
  for (; layers < 3; ++layers) {
    cl_int status;
    weights = clCreateBuffer(context, CL_MEM_READ_ONLY, kWeightBytes, nullptr, &status);  // leak: weights
    require(status, "weights");
    require(clEnqueueWriteBuffer(queue, weights, CL_TRUE, 0, kWeightBytes, bytes.data(), 0, nullptr, nullptr), "write");
  }
  return layers;
}

// Retained for a reader that never comes; and a view that outlives its buffer, which it keeps alive.
[[gnu::noinline]] unsigned share_result(cl_context context) {
  cl_int status;
  cl_mem result = clCreateBuffer(context, CL_MEM_READ_WRITE, kResultBytes, nullptr, &status);  // leak: result
  require(status, "result");
  require(clRetainMemObject(result), "retain");
  require(clReleaseMemObject(result), "release");

  cl_mem pool = clCreateBuffer(context, CL_MEM_READ_WRITE, kPoolBytes, nullptr, &status);
  require(status, "pool");
  const cl_buffer_region region{0, kViewBytes};
  cl_mem view = clCreateSubBuffer(pool, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &status);  // leak: view
  require(status, "view");
  require(clReleaseMemObject(pool), "release of the parent");

  cl_uint references = 0;
  require(clGetMemObjectInfo(view, CL_MEM_REFERENCE_COUNT, sizeof references, &references, nullptr), "references");
  return references;
}

void clean_work(cl_context context, cl_command_queue queue) {
  for (int turn = 0; turn < 50; ++turn) {
    cl_int status;
    cl_mem scratch = clCreateBuffer(context, CL_MEM_READ_WRITE, kWeightBytes, nullptr, &status);
    require(status, "scratch");
    const int pattern = turn;
    require(clEnqueueFillBuffer(queue, scratch, &pattern, sizeof pattern, 0, kWeightBytes, 0, nullptr, nullptr),
            "fill");
    int last = -1;
    require(clEnqueueReadBuffer(queue, scratch, CL_TRUE, kWeightBytes - sizeof last, sizeof last, &last, 0, nullptr,
                                nullptr),
            "read");
    if (last != turn) require(-1, "contents");
    require(clReleaseMemObject(scratch), "release");
  }
}

}  // namespace

int main() {
  cl_platform_id platform;
  cl_device_id device;
  cl_int status;
  require(clGetPlatformIDs(1, &platform, nullptr), "platform");
  require(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr), "device");
  cl_context context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &status);
  require(status, "context");
  cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, nullptr, &status);
  require(status, "queue");
  clean_work(context, queue);
  std::printf("%d layers loaded\n", load_weights(context, queue));
  std::printf("result shared, %u reference to its view\n", share_result(context));
  require(clReleaseCommandQueue(queue), "release of the queue");
  require(clReleaseContext(context), "release of the context");
}
