// The CUDA functions that Cistern exports, linked in and called by many threads, before the simulated driver: built
// with whatever sanitizer the build has. `cuda_threads [TURNS]`.
#include <cuda.h>

#include <cstring>

#include "tests/instrumented/threads.hpp"

namespace instrumented {
namespace {

constexpr unsigned kPlaces = 40;

enum class Way { plain, pitched, in_order, pinned, managed, ways };

struct Block {
  Way way;
  CUdeviceptr device;
  void* host;
  size_t bytes;
  unsigned char value;
};

std::atomic<Block*> places[kPlaces];
std::atomic<unsigned long> made_on_device{0}, made_pinned{0};  // the others are not pooled
CUcontext context;

void fill(Block& block, CUstream stream, Random& random) {
  block.value = static_cast<unsigned char>(random());
  if (block.host) {
    memset(block.host, block.value, block.bytes);
  } else {
    REQUIRE(cuMemsetD8Async(block.device, block.value, block.bytes, stream), CUDA_SUCCESS);
    REQUIRE(cuStreamSynchronize(stream), CUDA_SUCCESS);
  }
}

Block* make(CUstream stream, Random& random) {
  auto* const block = new Block{static_cast<Way>(random() % static_cast<unsigned>(Way::ways)), 0, nullptr,
                                1 + random() % (random() % 4 ? 5000u : 400000u), 0};
  size_t pitch = 0;
  switch (block->way) {
    case Way::pitched:
      REQUIRE(cuMemAllocPitch(&block->device, &pitch, block->bytes, 2, 4), CUDA_SUCCESS);
      ++made_on_device;
      break;
    case Way::in_order:
      REQUIRE(cuMemAllocAsync(&block->device, block->bytes, stream), CUDA_SUCCESS);
      break;
    case Way::pinned:
      REQUIRE(cuMemAllocHost(&block->host, block->bytes), CUDA_SUCCESS);
      ++made_pinned;
      break;
    case Way::managed:
      REQUIRE(cuMemAllocManaged(&block->device, block->bytes, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
      break;
    default:
      REQUIRE(cuMemAlloc(&block->device, block->bytes), CUDA_SUCCESS);
      ++made_on_device;
  }
  fill(*block, stream, random);
  return block;
}

void require_whole(const Block& block, CUstream stream) {
  std::vector<unsigned char> bytes(block.bytes);
  if (block.host) {
    memcpy(bytes.data(), block.host, block.bytes);
  } else {
    REQUIRE(cuMemcpyDtoHAsync(bytes.data(), block.device, block.bytes, stream), CUDA_SUCCESS);
    REQUIRE(cuStreamSynchronize(stream), CUDA_SUCCESS);
  }
  for (const unsigned char byte : bytes) REQUIRE(byte, block.value);
}

void end(Block* block, CUstream stream) {
  if (!block) return;
  require_whole(*block, stream);
  if (block->host) {
    REQUIRE(cuMemFreeHost(block->host), CUDA_SUCCESS);
  } else if (block->way == Way::in_order) {
    REQUIRE(cuMemFreeAsync(block->device, stream), CUDA_SUCCESS);
  } else {
    REQUIRE(cuMemFree(block->device), CUDA_SUCCESS);
  }
  delete block;
}

void query(const Block& block) {
  size_t free_bytes = 0, all_bytes = 0, bytes = 0;
  CUdeviceptr start = 0;
  REQUIRE(cuMemGetInfo(&free_bytes, &all_bytes), CUDA_SUCCESS);
  REQUIRE((free_bytes <= all_bytes), true);
  if (block.host || block.way == Way::pitched) return;
  REQUIRE(cuMemGetAddressRange(&start, &bytes, block.device + block.bytes / 2), CUDA_SUCCESS);
  REQUIRE((start == block.device && bytes >= block.bytes), true);
}

void capture(CUstream stream, Block& block, Random& random) {
  if (block.host) return;
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  block.value = static_cast<unsigned char>(random());
  REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  REQUIRE(cuMemsetD8Async(block.device, block.value, block.bytes, stream), CUDA_SUCCESS);
  REQUIRE(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  REQUIRE(cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
  REQUIRE(cuGraphLaunch(executable, stream), CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(stream), CUDA_SUCCESS);
  REQUIRE(cuGraphExecDestroy(executable), CUDA_SUCCESS);
  REQUIRE(cuGraphDestroy(graph), CUDA_SUCCESS);
}

void ask_too_much() {
  CUdeviceptr block = 0;
  REQUIRE(cuMemAlloc(&block, size_t{1} << 45), CUDA_ERROR_OUT_OF_MEMORY);
}

// Blocks change hands when every command on them has ended.
void turn(Random& random) {
  CUstream stream = nullptr;
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  for (int i = 0; i < 8; ++i) {
    std::atomic<Block*>& place = places[random() % kPlaces];
    Block* block = place.exchange(nullptr);
    if (block && random() % 2) {
      query(*block);
      require_whole(*block, stream);
      random() % 4 ? fill(*block, stream, random) : capture(stream, *block, random);
    } else {
      end(block, stream);
      block = random() % 8 ? make(stream, random) : nullptr;
      REQUIRE(cuStreamSynchronize(stream), CUDA_SUCCESS);
    }
    end(place.exchange(block), stream);
  }
  if (random() % 20 == 0) ask_too_much();
  ask(random, random() % 2 ? CISTERN_DEVICE : CISTERN_PINNED);
  REQUIRE(cuStreamSynchronize(stream), CUDA_SUCCESS);
  REQUIRE(cuStreamDestroy(stream), CUDA_SUCCESS);
}

}  // namespace
}  // namespace instrumented

int main(int count, char** arguments) {
  using namespace instrumented;
  const int turns = count > 1 ? atoi(arguments[1]) : 100;
  CUdevice device = 0;
  REQUIRE(cuInit(0), CUDA_SUCCESS);
  REQUIRE(cuDeviceGet(&device, 0), CUDA_SUCCESS);
  REQUIRE(cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
  run_threads(seed(), [=](Random random) {
    REQUIRE(cuCtxSetCurrent(context), CUDA_SUCCESS);
    for (int i = 0; i < turns; ++i) turn(random);
  });
  REQUIRE(cuCtxSetCurrent(context), CUDA_SUCCESS);
  for (std::atomic<Block*>& place : places) end(place.exchange(nullptr), nullptr);
  REQUIRE(cuCtxSynchronize(), CUDA_SUCCESS);
  require_counted(CISTERN_DEVICE, made_on_device, "device");
  require_counted(CISTERN_PINNED, made_pinned, "pinned");
  REQUIRE(cuDevicePrimaryCtxRelease(device), CUDA_SUCCESS);
  printf("all right\n");
  return 0;
}
