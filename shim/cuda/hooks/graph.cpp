// Graphs, as far as their nodes make and free memory (graph_memory.hpp) or run functions of the program's
// (host_functions.hpp): nodes that are added and changed, graphs that are launched and end. Nodes that stream captures
// add are in track.cpp, free.cpp and host_function.cpp, instantiations in make_room.cpp.
#include <utility>

#include "shim/cuda/hooks/hooks.hpp"
#include "shim/cuda/hooks/tracked.hpp"
#include "shim/cuda/host_functions.hpp"
#include "shim/cuda/stream_turn.hpp"

namespace cistern::cuda {
namespace {

// On a device: what is elsewhere is no kind of a device's memory.
template <class Pass>
CUresult add_allocation(CUgraph graph, CUDA_MEM_ALLOC_NODE_PARAMS* node, const char* api, Pass pass) {
  CudaState& s = state();
  if (!node || node->pool.location.type != kLocationDevice) return note(s, pass());
  const int device = node->pool.location.id;
  if (device < 0 || device >= kDevicesMax) return note(s, pass());
  const std::uint64_t bytes = node->bytes;
  const CUresult answer = with_room(s, s.contexts.device(device), bytes, pass);
  const CUdeviceptr address = answer == kSuccess ? node->address : 0;
  born(answer, {Family::graph, "allocation node", api, device}, as_handle(address), bytes);
  if (address) s.graph_memory.allocates(s, graph, address, false);
  return answer;
}

template <class Pass>
CUresult add_free(CUgraph graph, CUdeviceptr address, Pass pass) {
  CudaState& s = state();
  const CUresult answer = note(s, pass());
  if (answer == kSuccess) s.graph_memory.frees(s, graph, address);
  return answer;
}

template <class Pass>
CUresult pass_ours(const CUDA_HOST_NODE_PARAMS& ours, Pass pass) {
  const CUresult answer = note(state(), pass());
  if (answer != kSuccess) dropped(ours);
  return answer;
}
// `pass` takes what the driver gets of the program's parameters.
template <class Pass>
CUresult with_host_function(const CUDA_HOST_NODE_PARAMS* host, Pass pass) {
  if (!host) return note(state(), pass(host));
  const CUDA_HOST_NODE_PARAMS ours = run_by_graph(*host);
  return pass_ours(ours, [&] { return pass(&ours); });
}
template <class Pass>
CUresult with_host_function(CUgraphNodeParams* node, Pass pass) {
  if (!node || node->type != kNodeRunsHostFunction) return note(state(), pass(node));
  const CUDA_HOST_NODE_PARAMS ours = run_by_graph(node->host);
  CUgraphNodeParams with_ours = *node;
  with_ours.host = ours;
  return pass_ours(ours, [&] { return pass(&with_ours); });
}

template <class Pass>
CUresult add_node(CUgraph graph, CUgraphNodeParams* node, const char* api, Pass pass) {
  if (node && node->type == kNodeAllocates)
    return add_allocation(graph, &node->allocation, api, [&] { return pass(node); });
  if (node && node->type == kNodeFrees) return add_free(graph, node->freed, [&] { return pass(node); });
  return with_host_function(node, pass);
}

template <class Pass>
CUresult launch(CUgraphExec graph, CUstream stream, Zero zero, Pass pass) {
  CudaState& s = state();
  const CUresult answer = [&] {
    const StreamTurn turn(s, stream, zero);
    Transfers::last_was_no_copy();
    return note(s, pass());
  }();
  if (answer == kSuccess) s.graph_memory.launched(s, graph);
  return answer;
}

}  // namespace

namespace hook {

CUresult cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
  return add_allocation(graph, parameters, "cuGraphAddMemAllocNode",
                        [&] { return driver().cuGraphAddMemAllocNode(node, graph, after, count, parameters); });
}
CUresult cuGraphAddMemFreeNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                               CUdeviceptr pointer) {
  return add_free(graph, pointer, [&] { return driver().cuGraphAddMemFreeNode(node, graph, after, count, pointer); });
}
CUresult cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                        CUgraphNodeParams* parameters) {
  return add_node(graph, parameters, "cuGraphAddNode", [&](CUgraphNodeParams* passed) {
    return driver().cuGraphAddNode(node, graph, after, count, passed);
  });
}
CUresult cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, const void* edges, size_t count,
                           CUgraphNodeParams* parameters) {
  return add_node(graph, parameters, "cuGraphAddNode_v2", [&](CUgraphNodeParams* passed) {
    return driver().cuGraphAddNode_v2(node, graph, after, edges, count, passed);
  });
}
CUresult cuGraphAddNode_v3(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, const void* edges, size_t count,
                           CUgraphNodeParams* parameters) {
  return add_node(graph, parameters, "cuGraphAddNode_v3", [&](CUgraphNodeParams* passed) {
    return driver().cuGraphAddNode_v3(node, graph, after, edges, count, passed);
  });
}

CUresult cuGraphAddHostNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                            const CUDA_HOST_NODE_PARAMS* parameters) {
  return with_host_function(parameters, [&](const CUDA_HOST_NODE_PARAMS* passed) {
    return driver().cuGraphAddHostNode(node, graph, after, count, passed);
  });
}
CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* parameters) {
  return with_host_function(
      parameters, [&](const CUDA_HOST_NODE_PARAMS* passed) { return driver().cuGraphHostNodeSetParams(node, passed); });
}
CUresult cuGraphExecHostNodeSetParams(CUgraphExec graph, CUgraphNode node, const CUDA_HOST_NODE_PARAMS* parameters) {
  return with_host_function(parameters, [&](const CUDA_HOST_NODE_PARAMS* passed) {
    return driver().cuGraphExecHostNodeSetParams(graph, node, passed);
  });
}
CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams* parameters) {
  return with_host_function(parameters,
                            [&](CUgraphNodeParams* passed) { return driver().cuGraphNodeSetParams(node, passed); });
}
CUresult cuGraphNodeSetParams_v2(CUgraphNode node, CUgraphNodeParams* parameters) {
  return with_host_function(parameters,
                            [&](CUgraphNodeParams* passed) { return driver().cuGraphNodeSetParams_v2(node, passed); });
}
CUresult cuGraphExecNodeSetParams(CUgraphExec graph, CUgraphNode node, CUgraphNodeParams* parameters) {
  return with_host_function(
      parameters, [&](CUgraphNodeParams* passed) { return driver().cuGraphExecNodeSetParams(graph, node, passed); });
}
CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* parameters) {
  const CUresult answer = note(state(), driver().cuGraphHostNodeGetParams(node, parameters));
  if (answer == kSuccess) *parameters = as_passed(*parameters);
  return answer;
}
CUresult cuGraphNodeGetParams(CUgraphNode node, CUgraphNodeParams* parameters) {
  const CUresult answer = note(state(), driver().cuGraphNodeGetParams(node, parameters));
  if (answer == kSuccess && parameters->type == kNodeRunsHostFunction) parameters->host = as_passed(parameters->host);
  return answer;
}

CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
  return launch(graph, stream, Zero::legacy, [&] { return driver().cuGraphLaunch(graph, stream); });
}
CUresult cuGraphLaunch_ptsz(CUgraphExec graph, CUstream stream) {
  return launch(graph, stream, Zero::per_thread, [&] { return driver().cuGraphLaunch_ptsz(graph, stream); });
}

CUresult cuGraphExecDestroy(CUgraphExec graph) {
  GraphMemory& memory = state().graph_memory;
  GraphMemory::Executable taken = memory.take(graph);
  const CUresult answer = end_object(graph, [&] { return driver().cuGraphExecDestroy(graph); });
  if (answer != kSuccess && answer != kDeinitialized) memory.put_back(graph, std::move(taken));
  return answer;
}
CUresult cuGraphDestroy(CUgraph graph) {
  CudaState& s = state();
  GraphMemory::Graph taken = s.graph_memory.take(s, graph);
  const CUresult answer = note(s, driver().cuGraphDestroy(graph));
  answer == kSuccess || answer == kDeinitialized ? GraphMemory::gone(s, taken)
                                                 : s.graph_memory.put_back(s, graph, std::move(taken));
  return answer;
}

// The driver's high-water marks can be set back.
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, int attribute, void* value) {
  CudaState& s = state();
  s.graph_memory.sample(s, device);
  return note(s, driver().cuDeviceSetGraphMemAttribute(device, attribute, value));
}
CUresult cuDeviceGraphMemTrim(CUdevice device) {
  CudaState& s = state();
  const CUresult answer = note(s, driver().cuDeviceGraphMemTrim(device));
  if (answer == kSuccess) s.graph_memory.sample(s, device);
  return answer;
}

}  // namespace hook
}  // namespace cistern::cuda
