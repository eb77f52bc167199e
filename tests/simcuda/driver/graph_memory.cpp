// Allocations and frees inside graphs.
#include "tests/simcuda/driver/graph_memory.hpp"

#include <cstring>

#include "tests/simcuda/driver/capture.hpp"
#include "tests/simcuda/driver/memory.hpp"
#include "tests/simcuda/driver/settings.hpp"
#include "tests/simcuda/driver/stream.hpp"

namespace simcuda {
namespace {

struct GraphMemory {
  explicit GraphMemory(Allocation block) : allocation(std::move(block)) {}
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;
  ~GraphMemory() {
    if (process_state() != ProcessState::kReady) return;
    Locked lock = lock_driver();
    driver().allocations.erase(allocation.begin);
    release_storage(lock, allocation);
  }
  const Allocation allocation;
};

}  // namespace

std::shared_ptr<void> make_graph_memory(Locked& lock, Device& device, Context* context, size_t bytes,
                                        CUdeviceptr* pointer) {
  const uintptr_t address = bytes ? take_device_memory(lock, device, bytes) : 0;
  if (!address) return nullptr;
  const Allocation& entered = driver().allocations.insert(
      {.begin = address, .bytes = bytes, .kind = MemoryKind::kGraph, .context = context, .device = device.ordinal});
  ++counters.allocs;
  *pointer = address;
  return std::make_shared<GraphMemory>(entered);
}

CUresult capture_allocation(Locked& lock, Stream& stream, Device& device, size_t bytes, CUdeviceptr* pointer) {
  if (stream.capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  auto memory = make_graph_memory(lock, device, stream.context, bytes, pointer);
  if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
  stream.capture->graph->owned.push_back(std::move(memory));
  return capture_task(lock, stream, Task{CU_GRAPH_NODE_TYPE_MEM_ALLOC, [] {}, nullptr, stream.context});
}

Task free_task(const Allocation& allocation) {
  const auto poison = [address = allocation.begin, bytes = allocation.bytes] {
    if (settings.poison) std::memset(reinterpret_cast<void*>(address), kPoison, bytes);
  };
  return Task{CU_GRAPH_NODE_TYPE_MEM_FREE, poison, nullptr, allocation.context};
}

// [assumed] Only memory of a graph can be freed in a capture.
CUresult capture_free(Locked& lock, Stream& stream, const Allocation& allocation) {
  if (allocation.kind != MemoryKind::kGraph) return CUDA_ERROR_INVALID_VALUE;
  return capture_task(lock, stream, free_task(allocation));
}

}  // namespace simcuda
