// The OpenCL functions that Cistern exports, linked in and called by many threads, before the implementations of this
// machine: built with whatever sanitizer the build has. `opencl_threads [TURNS]`.
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>

#include "tests/instrumented/threads.hpp"

namespace instrumented {
namespace {

constexpr unsigned kPlaces = 40;

struct Block {
  cl_mem memory;
  size_t bytes;
  unsigned char value;
};

std::atomic<Block*> places[kPlaces];
std::atomic<unsigned long> made{0};
cl_device_id device;
cl_context context;

void fill(Block& block, cl_command_queue queue, Random& random) {
  block.value = static_cast<unsigned char>(random());
  REQUIRE(clEnqueueFillBuffer(queue, block.memory, &block.value, 1, 0, block.bytes, 0, nullptr, nullptr), CL_SUCCESS);
  REQUIRE(clFinish(queue), CL_SUCCESS);
}

Block* make(cl_command_queue queue, Random& random) {
  auto* const block = new Block{nullptr, 1 + random() % (random() % 4 ? 5000u : 400000u), 0};
  cl_int code = 0;
  block->memory = clCreateBuffer(context, CL_MEM_READ_WRITE, block->bytes, nullptr, &code);
  REQUIRE(code, CL_SUCCESS);
  ++made;
  fill(*block, queue, random);
  return block;
}

void require_whole(const Block& block, cl_command_queue queue) {
  std::vector<unsigned char> bytes(block.bytes);
  REQUIRE(clEnqueueReadBuffer(queue, block.memory, CL_TRUE, 0, block.bytes, bytes.data(), 0, nullptr, nullptr),
          CL_SUCCESS);
  for (const unsigned char byte : bytes) REQUIRE(byte, block.value);
}

void end(Block* block, cl_command_queue queue) {
  if (!block) return;
  require_whole(*block, queue);
  REQUIRE(clReleaseMemObject(block->memory), CL_SUCCESS);
  delete block;
}

void query(const Block& block, cl_command_queue queue) {
  size_t bytes = 0;
  cl_uint references = 0;
  REQUIRE(clGetMemObjectInfo(block.memory, CL_MEM_SIZE, sizeof bytes, &bytes, nullptr), CL_SUCCESS);
  REQUIRE(bytes, block.bytes);
  REQUIRE(clRetainMemObject(block.memory), CL_SUCCESS);
  REQUIRE(clGetMemObjectInfo(block.memory, CL_MEM_REFERENCE_COUNT, sizeof references, &references, nullptr),
          CL_SUCCESS);
  REQUIRE((references >= 2), true);  // PoCL's worker lets go of what a command used a moment after clFinish
  cl_int code = 0;
  void* const mapped =
      clEnqueueMapBuffer(queue, block.memory, CL_TRUE, CL_MAP_READ, 0, block.bytes, 0, nullptr, nullptr, &code);
  REQUIRE(code, CL_SUCCESS);
  REQUIRE(*static_cast<const unsigned char*>(mapped), block.value);
  REQUIRE(clEnqueueUnmapMemObject(queue, block.memory, mapped, 0, nullptr, nullptr), CL_SUCCESS);
  REQUIRE(clFinish(queue), CL_SUCCESS);
  REQUIRE(clReleaseMemObject(block.memory), CL_SUCCESS);
}

// Released while a command still uses it.
void end_in_flight(cl_command_queue queue, Random& random) {
  Block* const block = make(queue, random);
  const unsigned char value = 7;
  REQUIRE(clEnqueueFillBuffer(queue, block->memory, &value, 1, 0, block->bytes, 0, nullptr, nullptr), CL_SUCCESS);
  REQUIRE(clReleaseMemObject(block->memory), CL_SUCCESS);
  delete block;
}

void turn(Random& random) {
  cl_int code = 0;
  cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, nullptr, &code);
  REQUIRE(code, CL_SUCCESS);
  for (int i = 0; i < 8; ++i) {
    std::atomic<Block*>& place = places[random() % kPlaces];
    Block* block = place.exchange(nullptr);
    if (block && random() % 2) {
      query(*block, queue);
      require_whole(*block, queue);
      fill(*block, queue, random);
    } else {
      end(block, queue);
      block = random() % 8 ? make(queue, random) : nullptr;
    }
    end(place.exchange(block), queue);
  }
  if (random() % 2) end_in_flight(queue, random);
  ask(random, CISTERN_OPENCL);
  REQUIRE(clReleaseCommandQueue(queue), CL_SUCCESS);
}

}  // namespace
}  // namespace instrumented

int main(int count, char** arguments) {
  using namespace instrumented;
  const int turns = count > 1 ? atoi(arguments[1]) : 100;
  cl_platform_id platform;
  cl_int code = 0;
  REQUIRE(clGetPlatformIDs(1, &platform, nullptr), CL_SUCCESS);
  REQUIRE(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr), CL_SUCCESS);
  context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &code);
  REQUIRE(code, CL_SUCCESS);
  run_threads(seed(), [=](Random random) {
    for (int i = 0; i < turns; ++i) turn(random);
  });
  cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, nullptr, &code);
  for (std::atomic<Block*>& place : places) end(place.exchange(nullptr), queue);
  REQUIRE(clFinish(queue), CL_SUCCESS);
  REQUIRE(clReleaseCommandQueue(queue), CL_SUCCESS);
  require_counted(CISTERN_OPENCL, made, "OpenCL");
  REQUIRE(clReleaseContext(context), CL_SUCCESS);
  printf("all right\n");
  return 0;
}
