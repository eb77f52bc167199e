// Allocations and frees inside graphs.
#include "tests/simcuda/driver/graph_memory.hpp"

#include <algorithm>
#include <cstring>

#include "tests/simcuda/driver/call.hpp"
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
    driver().devices[static_cast<size_t>(allocation.device)]->graph_bytes -= allocation.bytes;
    release_storage(lock, allocation);
  }
  const Allocation allocation;
};

// What launches have left.
std::map<uintptr_t, std::shared_ptr<void>>& left_behind() {
  static auto& all = *new std::map<uintptr_t, std::shared_ptr<void>>;
  return all;
}

}  // namespace

CUresult make_graph_memory(Locked& lock, Graph& graph, Device& device, Context* context, size_t bytes,
                           CUdeviceptr* pointer) {
  const uintptr_t address = bytes ? take_device_memory(lock, device, bytes) : 0;
  if (!address) return CUDA_ERROR_OUT_OF_MEMORY;
  const Allocation& entered = driver().allocations.insert(
      {.begin = address, .bytes = bytes, .kind = MemoryKind::kGraph, .context = context, .device = device.ordinal});
  ++counters.allocs;
  device.graph_bytes += bytes;
  device.graph_bytes_peak = std::max(device.graph_bytes_peak, device.graph_bytes);
  *pointer = address;
  graph.owned[address] = std::make_shared<GraphMemory>(entered);
  return CUDA_SUCCESS;
}

CUresult capture_allocation(Locked& lock, Stream& stream, Device& device, size_t bytes, CUdeviceptr* pointer) {
  if (stream.capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (const CUresult failed = make_graph_memory(lock, *stream.capture->graph, device, stream.context, bytes, pointer))
    return failed;
  return capture_task(lock, stream, Task{CU_GRAPH_NODE_TYPE_MEM_ALLOC, [] {}, nullptr, stream.context});
}

Task free_task(Graph& graph, const Allocation& allocation) {
  graph.freed.insert(allocation.begin);
  const auto poison = [address = allocation.begin, bytes = allocation.bytes] {
    if (settings.poison) std::memset(reinterpret_cast<void*>(address), kPoison, bytes);
  };
  return Task{CU_GRAPH_NODE_TYPE_MEM_FREE, poison, nullptr, allocation.context};
}

// [assumed] Only memory of a graph can be freed in a capture.
CUresult capture_free(Locked& lock, Stream& stream, const Allocation& allocation) {
  if (allocation.kind != MemoryKind::kGraph) return CUDA_ERROR_INVALID_VALUE;
  return capture_task(lock, stream, free_task(*stream.capture->graph, allocation));
}

void graph_launched(Locked& lock, const Graph& graph) {
  for (const auto& [address, memory] : graph.owned)
    if (!graph.freed.contains(address)) left_behind()[address] = memory;
  for (const uintptr_t address : graph.freed)
    if (!graph.owned.contains(address)) graph_memory_freed(lock, address);
}

void graph_memory_freed(Locked&, uintptr_t address) { left_behind().erase(address); }

}  // namespace simcuda

using namespace simcuda;

// [assumed] The device has reserved what nodes use, and no more.
extern "C" CUresult cuDeviceGetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void* value) {
  SIMCUDA_CALL(kContextless);
  Locked lock = lock_driver();
  const Device* device = find_device(ordinal);
  if (!device || !value) return CUDA_ERROR_INVALID_VALUE;
  const bool peak = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
  *static_cast<cuuint64_t*>(value) = peak ? device->graph_bytes_peak : device->graph_bytes;
  return CUDA_SUCCESS;
}

// [documented] High-water marks can be set to zero, and nothing else.
extern "C" CUresult cuDeviceSetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void* value) {
  SIMCUDA_CALL(kContextless);
  Locked lock = lock_driver();
  Device* device = find_device(ordinal);
  if (!device || !value || *static_cast<cuuint64_t*>(value) ||
      (attribute != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH && attribute != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH))
    return CUDA_ERROR_INVALID_VALUE;
  device->graph_bytes_peak = device->graph_bytes;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuDeviceGraphMemTrim(CUdevice ordinal) {
  SIMCUDA_CALL(kContextless);
  return find_device(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
