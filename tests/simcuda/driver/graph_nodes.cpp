// Graphs built node by node, and what can be asked of them.
#include <algorithm>

#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/copy_shapes.hpp"
#include "tests/simcuda/driver/device_work.hpp"
#include "tests/simcuda/driver/graph_memory.hpp"
#include "tests/simcuda/driver/graph_table.hpp"
#include "tests/simcuda/driver/host_function.hpp"
#include "tests/simcuda/driver/kernel.hpp"
#include "tests/simcuda/driver/memory.hpp"
#include "tests/simcuda/driver/memset.hpp"

using namespace simcuda;

namespace {

CUgraphNode handle_of(GraphNode* node) { return reinterpret_cast<CUgraphNode>(node); }

// The nodes behind handles, all of this graph.
bool find_nodes(const Graph& graph, const CUgraphNode* handles, size_t count, std::vector<GraphNode*>& nodes) {
  for (size_t index = 0; index < count; ++index) {
    const auto found = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                    [&](const auto& node) { return handle_of(node.get()) == handles[index]; });
    if (found == graph.nodes.end()) return false;
    nodes.push_back(found->get());
  }
  return true;
}

struct NewNode {
  CUgraphNode* handle;
  CUgraph graph;
  const CUgraphNode* after;
  size_t after_count;
};

CUresult add(Locked& lock, const NewNode& place, Task task) {
  const auto graph = find_graph(lock, place.graph);
  std::vector<GraphNode*> after;
  if (!place.handle || !graph || !find_nodes(*graph, place.after, place.after_count, after))
    return CUDA_ERROR_INVALID_VALUE;
  *place.handle = handle_of(graph->add(std::move(task), std::move(after)));
  return CUDA_SUCCESS;
}

CUresult add_kernel(const NewNode& place, const void* function_handle, void** arguments, void** extra,
                    CUcontext context_handle) {
  if (extra) return refuse("a kernel node with a packed argument buffer (extra)");
  Locked lock = lock_driver();
  CUresult result = CUDA_ERROR_INVALID_CONTEXT;
  Context* context = context_handle ? find_context(lock, context_handle) : current_context(result);
  const Function* function = find_function(lock, function_handle);
  if (!context) return result;
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  return add(lock, place, launch_task(lock, *function, arguments, context));
}

CUresult add_allocation(const NewNode& place, const CUmemPoolProps& where, size_t bytes, CUdeviceptr* pointer) {
  if (where.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  CUresult ignored;
  const auto graph = find_graph(lock, place.graph);
  Device* device = find_device(where.location.id);
  if (!graph || !device || !bytes) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult failed = make_graph_memory(lock, *graph, *device, current_context(ignored), bytes, pointer))
    return failed;
  return add(lock, place, Task{CU_GRAPH_NODE_TYPE_MEM_ALLOC, [] {}});
}

CUresult add_free(const NewNode& place, CUdeviceptr pointer) {
  Locked lock = lock_driver();
  const Allocation* allocation = driver().allocations.find_exact(to_address(pointer));
  const auto graph = find_graph(lock, place.graph);
  if (!graph || !allocation || allocation->kind != MemoryKind::kGraph) return CUDA_ERROR_INVALID_VALUE;
  return add(lock, place, free_task(*graph, *allocation));
}

CUresult add_host_function(const NewNode& place, CUhostFn function, void* argument) {
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  return add(lock, place, host_task(function, argument));
}

#if CUDA_VERSION >= 12020
// Nodes of other types have functions of their own here.
CUresult add_any(const NewNode& place, CUgraphNodeParams* node) {
  if (!node) return CUDA_ERROR_INVALID_VALUE;
  switch (node->type) {
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return add_allocation(place, node->alloc.poolProps, node->alloc.bytesize, &node->alloc.dptr);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return add_free(place, node->free.dptr);
    case CU_GRAPH_NODE_TYPE_HOST:
      return add_host_function(place, node->host.fn, node->host.userData);
    default:
      return refuse("cuGraphAddNode of this type");
  }
}
#endif

// Fills the caller's array, or says how many there are.
CUresult give_nodes(const std::vector<GraphNode*>& nodes, CUgraphNode* array, size_t* count) {
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  if (array) {
    const size_t given = std::min(*count, nodes.size());
    std::transform(nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(given), array, handle_of);
    // [documented] What is left of the array is filled with null.
    std::fill(array + given, array + *count, nullptr);
  }
  if (!array || *count > nodes.size()) *count = nodes.size();
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" CUresult cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count) {
  SIMCUDA_CALL(kContextless);
  Locked lock = lock_driver();
  return add(lock, {node, graph, after, count}, {});
}

extern "C" CUresult cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                         const CUDA_KERNEL_NODE_PARAMS_v1* kernel) {
  SIMCUDA_CALL(kOrdinary);
  if (!kernel) return CUDA_ERROR_INVALID_VALUE;
  return add_kernel({node, graph, after, count}, kernel->func, kernel->kernelParams, kernel->extra, nullptr);
}

extern "C" CUresult cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                            const CUDA_KERNEL_NODE_PARAMS_v2* kernel) {
  SIMCUDA_CALL(kOrdinary);
  if (!kernel) return CUDA_ERROR_INVALID_VALUE;
  const void* function = kernel->func ? static_cast<const void*>(kernel->func) : kernel->kern;
  return add_kernel({node, graph, after, count}, function, kernel->kernelParams, kernel->extra, kernel->ctx);
}

extern "C" CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                         const CUDA_MEMCPY3D* description, CUcontext) {
  SIMCUDA_CALL(kContextless);
  if (!description) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  ShapedCopy shaped;
  if (const CUresult wrong = resolve(lock, *description, shaped)) return wrong;
  return add(lock, {node, graph, after, count}, copy_task(lock, shaped));
}

extern "C" CUresult cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                         const CUDA_MEMSET_NODE_PARAMS* what, CUcontext) {
  SIMCUDA_CALL(kContextless);
  if (!what || (what->elementSize != 1 && what->elementSize != 2 && what->elementSize != 4))
    return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  const size_t bytes = (std::max<size_t>(what->height, 1) - 1) * what->pitch + what->width * what->elementSize;
  if (!is_device_range(lock, what->dst, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const Fill fill{what->elementSize, what->value, what->width, what->height, what->pitch};
  return add(lock, {node, graph, after, count}, fill_task(lock, what->dst, fill));
}

extern "C" CUresult cuGraphAddHostNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                       const CUDA_HOST_NODE_PARAMS* host) {
  SIMCUDA_CALL(kContextless);
  if (!host) return CUDA_ERROR_INVALID_VALUE;
  return add_host_function({node, graph, after, count}, host->fn, host->userData);
}

extern "C" CUresult cuGraphHostNodeGetParams(CUgraphNode handle, CUDA_HOST_NODE_PARAMS* host) {
  SIMCUDA_CALL(kContextless);
  Locked lock = lock_driver();
  const GraphNode* node = find_node(lock, handle);
  if (!host || !node || node->task.type != CU_GRAPH_NODE_TYPE_HOST) return CUDA_ERROR_INVALID_VALUE;
  *host = *static_cast<const CUDA_HOST_NODE_PARAMS*>(node->task.parameters.get());
  return CUDA_SUCCESS;
}

#if CUDA_VERSION >= 12020
// Of a later toolkit than the headers. Of nodes of other types only the type is told here.
extern "C" CUresult cuGraphNodeGetParams(CUgraphNode handle, CUgraphNodeParams* parameters) {
  SIMCUDA_CALL(kContextless);
  Locked lock = lock_driver();
  const GraphNode* node = find_node(lock, handle);
  if (!node || !parameters) return CUDA_ERROR_INVALID_VALUE;
  *parameters = {};
  parameters->type = node->task.type;
  if (node->task.type != CU_GRAPH_NODE_TYPE_HOST) return CUDA_SUCCESS;
  const auto* const host = static_cast<const CUDA_HOST_NODE_PARAMS*>(node->task.parameters.get());
  parameters->host.fn = host->fn;
  parameters->host.userData = host->userData;
  return CUDA_SUCCESS;
}
#endif

extern "C" CUresult cuGraphHostNodeSetParams(CUgraphNode handle, const CUDA_HOST_NODE_PARAMS* host) {
  SIMCUDA_CALL(kContextless);
  Locked lock = lock_driver();
  GraphNode* node = find_node(lock, handle);
  if (!host || !host->fn || !node || node->task.type != CU_GRAPH_NODE_TYPE_HOST) return CUDA_ERROR_INVALID_VALUE;
  node->task = host_task(host->fn, host->userData);
  return CUDA_SUCCESS;
}

// [documented] The child is copied: later changes of it do not show.
extern "C" CUresult cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                             CUgraph child_handle) {
  SIMCUDA_CALL(kContextless);
  Locked lock = lock_driver();
  const auto child = find_graph(lock, child_handle);
  if (!child) return CUDA_ERROR_INVALID_VALUE;
  if (!child->owned.empty()) return refuse("a child graph with memory nodes");
  const auto tasks = std::make_shared<std::vector<Task>>();
  if (!tasks_in_order(*child, *tasks)) return CUDA_ERROR_INVALID_VALUE;
  return add(lock, {node, graph, after, count},
             {CU_GRAPH_NODE_TYPE_GRAPH, [tasks] { run_tasks(*tasks); }, nullptr, nullptr, touched_by(*tasks)});
}

extern "C" CUresult cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                           CUDA_MEM_ALLOC_NODE_PARAMS* wanted) {
  SIMCUDA_CALL(kContextless | kAllocates);
  if (!wanted) return CUDA_ERROR_INVALID_VALUE;
  return add_allocation({node, graph, after, count}, wanted->poolProps, wanted->bytesize, &wanted->dptr);
}

extern "C" CUresult cuGraphAddMemFreeNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                          CUdeviceptr pointer) {
  SIMCUDA_CALL(kContextless);
  return add_free({node, graph, after, count}, pointer);
}

#if CUDA_VERSION >= 12030
extern "C" CUresult cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                   CUgraphNodeParams* parameters) {
  SIMCUDA_CALL(kContextless);
  return add_any({node, graph, after, count}, parameters);
}

// [assumed] No edge has data.
extern "C" CUresult cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                      const CUgraphEdgeData*, size_t count, CUgraphNodeParams* parameters) {
  SIMCUDA_CALL(kContextless);
  return add_any({node, graph, after, count}, parameters);
}

// Of a later toolkit than the headers.
extern "C" CUresult cuGraphAddNode_v3(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                      const CUgraphEdgeData*, size_t count, CUgraphNodeParams* parameters) {
  SIMCUDA_CALL(kContextless);
  return add_any({node, graph, after, count}, parameters);
}
#endif

extern "C" CUresult cuGraphGetNodes(CUgraph graph_handle, CUgraphNode* array, size_t* count) {
  SIMCUDA_CALL(kContextless);
  Locked lock = lock_driver();
  const auto graph = find_graph(lock, graph_handle);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode*> nodes;
  for (const auto& node : graph->nodes) nodes.push_back(node.get());
  return give_nodes(nodes, array, count);
}

extern "C" CUresult cuGraphGetRootNodes(CUgraph graph_handle, CUgraphNode* array, size_t* count) {
  SIMCUDA_CALL(kContextless);
  Locked lock = lock_driver();
  const auto graph = find_graph(lock, graph_handle);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode*> nodes;
  for (const auto& node : graph->nodes)
    if (node->after.empty()) nodes.push_back(node.get());
  return give_nodes(nodes, array, count);
}

extern "C" CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  SIMCUDA_CALL(kContextless);
  Locked lock = lock_driver();
  const GraphNode* node = find_node(lock, handle);
  if (!node || !type) return CUDA_ERROR_INVALID_VALUE;
  *type = node->task.type;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuGraphNodeGetDependencies(CUgraphNode handle, CUgraphNode* array, size_t* count) {
  SIMCUDA_CALL(kContextless);
  Locked lock = lock_driver();
  const GraphNode* node = find_node(lock, handle);
  return node ? give_nodes(node->after, array, count) : CUDA_ERROR_INVALID_VALUE;
}

extern "C" CUresult cuGraphAddDependencies(CUgraph graph_handle, const CUgraphNode* from, const CUgraphNode* to,
                                           size_t count) {
  SIMCUDA_CALL(kContextless);
  Locked lock = lock_driver();
  const auto graph = find_graph(lock, graph_handle);
  std::vector<GraphNode*> before, later;
  if (!graph || !find_nodes(*graph, from, count, before) || !find_nodes(*graph, to, count, later))
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t index = 0; index < count; ++index) later[index]->after.push_back(before[index]);
  return CUDA_SUCCESS;
}
