// Actor: OpenCL buffers of one context, filled, copied, read back and handed between threads; short-lived queues,
// sub-buffers, and creations that must fail. At the end Cistern must have counted what was counted here.
#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>

#include <vector>

#include "tests/storm/cistern_calls.hpp"
#include "tests/storm/storm.hpp"

namespace storm {
namespace {

constexpr unsigned kPlaces = 24;

struct Buffer {
  cl_mem handle;
  size_t words;
  cl_uint value;  // of each word
};

cl_context context;
cl_device_id device;
cl_command_queue shared_queue;
std::atomic<Buffer*> places[kPlaces];
std::atomic<uint64_t> made{0}, refused{0};

void check(cl_int code, const char* what) {
  if (code != CL_SUCCESS) fail("%s: %d", what, code);
}
#define CHECK(call) check(call, #call)

cl_command_queue new_queue() {
  cl_int code = 0;
  const cl_command_queue queue = clCreateCommandQueue(context, device, 0, &code);
  check(code, "clCreateCommandQueue");
  return queue;
}

bool set_up() {
  cl_platform_id platform = nullptr;
  if (clGetPlatformIDs(1, &platform, nullptr) || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr))
    return false;
  cl_int code = 0;
  context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &code);
  check(code, "clCreateContext");
  shared_queue = new_queue();
  return true;
}

void fill(cl_command_queue queue, Buffer& buffer, Random& random) {
  buffer.value = static_cast<cl_uint>(random.next());
  CHECK(clEnqueueFillBuffer(queue, buffer.handle, &buffer.value, sizeof buffer.value, 0,
                            buffer.words * sizeof buffer.value, 0, nullptr, nullptr));
}

Buffer* make(cl_command_queue queue, Random& random) {
  const size_t words = 16 + random.below(random.below(4) ? 2000 : 300000);
  cl_int code = 0;
  Buffer* const buffer =
      new Buffer{clCreateBuffer(context, CL_MEM_READ_WRITE, words * sizeof(cl_uint), nullptr, &code), words, 0};
  check(code, "clCreateBuffer");
  ++made;
  fill(queue, *buffer, random);
  return buffer;
}

void require_value(cl_command_queue queue, const Buffer& buffer) {
  std::vector<cl_uint> words(buffer.words);
  CHECK(clEnqueueReadBuffer(queue, buffer.handle, CL_TRUE, 0, words.size() * sizeof words[0], words.data(), 0, nullptr,
                            nullptr));
  for (size_t i = 0; i < words.size(); ++i)
    if (words[i] != buffer.value)
      fail("OpenCL: word %zu of %zu is %x, not %x", i, words.size(), words[i], buffer.value);
}

void end(cl_command_queue queue, Buffer* buffer) {
  if (!buffer) return;
  require_value(queue, *buffer);
  CHECK(clReleaseMemObject(buffer->handle));
  delete buffer;
}

void use_part(Buffer& buffer) {
  const cl_buffer_region region = {0, 64};
  cl_int code = 0;
  const cl_mem part = clCreateSubBuffer(buffer.handle, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
  check(code, "clCreateSubBuffer");
  ++made;
  CHECK(clReleaseMemObject(part));
}

void ask_too_much() {
  cl_int code = 0;
  if (clCreateBuffer(context, CL_MEM_READ_WRITE, size_t{1} << 60, nullptr, &code) || code == CL_SUCCESS)
    fail("OpenCL gave a buffer of 2^60 bytes");
  ++refused;
}

// A buffer changes hands when every command on it has ended.
void turn(Random& random) {
  const cl_command_queue queue = random.below(3) ? shared_queue : new_queue();
  std::atomic<Buffer*>& place = places[random.below(kPlaces)];
  Buffer* buffer = place.exchange(nullptr);
  if (buffer && random.below(2)) {
    require_value(queue, *buffer);
    fill(queue, *buffer, random);
    if (random.below(4) == 0) use_part(*buffer);
  } else {
    end(queue, buffer);
    buffer = make(queue, random);
  }
  if (random.below(50) == 0) ask_too_much();
  CHECK(clFinish(queue));
  end(queue, place.exchange(buffer));
  if (queue != shared_queue) CHECK(clReleaseCommandQueue(queue));
}

void end_all() {
  for (std::atomic<Buffer*>& place : places) end(shared_queue, place.exchange(nullptr));
  CHECK(clReleaseCommandQueue(shared_queue));
  CHECK(clReleaseContext(context));
  if (!cistern.get_statistics) return;
  const cistern_statistics figures = statistics_of(CISTERN_OPENCL);
  if (figures.allocations != made || figures.frees != made || figures.live_blocks || figures.live_bytes)
    fail("OpenCL: %llu made, and Cistern says %llu, %llu of them freed, %llu live",
         static_cast<unsigned long long>(made), static_cast<unsigned long long>(figures.allocations),
         static_cast<unsigned long long>(figures.frees), static_cast<unsigned long long>(figures.live_blocks));
  if (figures.failed != refused)
    fail("OpenCL: %llu refused, and Cistern says %llu", static_cast<unsigned long long>(refused),
         static_cast<unsigned long long>(figures.failed));
}

const Registered opencl({"opencl", 2, turn, set_up, end_all});

}  // namespace
}  // namespace storm
