// Memory nodes of graphs: the block is taken when the node is made and lives as long as the graph and its executables,
// and where no node of the graph frees it, from a launch until somebody does.
#pragma once
#include <memory>

#include "tests/simcuda/driver/driver.hpp"
#include "tests/simcuda/driver/graph.hpp"

namespace simcuda {

struct Stream;

// [documented] A node's address is fixed for the graph's life. [assumed] Its memory is counted from the node's creation
// and not from the first launch, and there is no reuse between the nodes of a graph.
CUresult make_graph_memory(Locked&, Graph& graph, Device& device, Context* context, size_t bytes, CUdeviceptr* pointer);

CUresult capture_allocation(Locked&, Stream& stream, Device& device, size_t bytes, CUdeviceptr* pointer);
CUresult capture_free(Locked&, Stream& stream, const Allocation& allocation);
Task free_task(Graph& graph, const Allocation& allocation);
// [documented] What no node of the graph frees stays when the graph ends. [assumed] From the call of the launch on.
void graph_launched(Locked&, const Graph& graph);
void graph_memory_freed(Locked&, uintptr_t address);

}  // namespace simcuda
