// Memory nodes of graphs: the block is taken when the node is made and lives as long as the graph and its executables.
#pragma once
#include <memory>

#include "tests/simcuda/driver/driver.hpp"
#include "tests/simcuda/driver/graph.hpp"

namespace simcuda {

struct Stream;

// [documented] A node's address is fixed for the graph's life. [assumed] Its memory is counted from the node's creation
// and not from the first launch, and there is no reuse between the nodes of a graph.
std::shared_ptr<void> make_graph_memory(Locked&, Device& device, Context* context, size_t bytes, CUdeviceptr* pointer);

CUresult capture_allocation(Locked&, Stream& stream, Device& device, size_t bytes, CUdeviceptr* pointer);
CUresult capture_free(Locked&, Stream& stream, const Allocation& allocation);
Task free_task(const Allocation& allocation);

}  // namespace simcuda
