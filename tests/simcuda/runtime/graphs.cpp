// Graphs: making, asking, instantiating and destroying. Nodes: graph_nodes.cpp. Launching: per_stream/capture.cpp.
#include "state.hpp"

using namespace simcuda_runtime;

static_assert(sizeof(cudaGraphEdgeData) == sizeof(CUgraphEdgeData));

extern "C" {

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned int flags) {
  return in_context([&] { return DRIVER(cuGraphCreate, 10000)(graph, flags); });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return in_context([&] { return DRIVER(cuGraphDestroy, 10000)(graph); });
}

cudaError_t cudaGraphClone(cudaGraph_t* clone, cudaGraph_t original) {
  return in_context([&] { return DRIVER(cuGraphClone, 10000)(clone, original); });
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                     const cudaGraphEdgeData* edges, size_t count) {
  return in_context([&] {
    return DRIVER(cuGraphAddDependencies, 12030)(graph, from, to, reinterpret_cast<const CUgraphEdgeData*>(edges),
                                                 count);
  });
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return in_context([&] { return DRIVER(cuGraphGetRootNodes, 10000)(graph, nodes, count); });
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* nodes, cudaGraphEdgeData* edges,
                                         size_t* count) {
  return in_context([&] {
    return DRIVER(cuGraphNodeGetDependencies, 12030)(node, nodes, reinterpret_cast<CUgraphEdgeData*>(edges), count);
  });
}

cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
  return in_context([&] { return DRIVER(cuGraphDestroyNode, 10000)(node); });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return in_context([&] { return DRIVER(cuGraphGetNodes, 10000)(graph, nodes, count); });
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return in_context([&] { return DRIVER(cuGraphNodeGetType, 10000)(node, reinterpret_cast<CUgraphNodeType*>(type)); });
}

// Since 12.0 the plain name has the flags' signature [documented].
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return in_context([&] { return DRIVER(cuGraphInstantiateWithFlags, 11040)(executable, graph, flags); });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return in_context([&] { return DRIVER(cuGraphInstantiateWithFlags, 11040)(executable, graph, flags); });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return in_context([&] { return DRIVER(cuGraphExecDestroy, 10000)(executable); });
}

cudaError_t cudaDeviceGraphMemTrim(int device) {
  return in_context([&] { return DRIVER(cuDeviceGraphMemTrim, 11040)(device); });
}

cudaError_t cudaDeviceGetGraphMemAttribute(int device, cudaGraphMemAttributeType attribute, void* value) {
  return in_context([&] {
    return DRIVER(cuDeviceGetGraphMemAttribute, 11040)(device, static_cast<CUgraphMem_attribute>(attribute), value);
  });
}

cudaError_t cudaDeviceSetGraphMemAttribute(int device, cudaGraphMemAttributeType attribute, void* value) {
  return in_context([&] {
    return DRIVER(cuDeviceSetGraphMemAttribute, 11040)(device, static_cast<CUgraphMem_attribute>(attribute), value);
  });
}

}  // extern "C"
