// The life of graphs: create, clone, destroy, instantiate, launch.
#include "tests/simcuda/driver/graph.hpp"

#include <unordered_map>

#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/device_work.hpp"
#include "tests/simcuda/driver/graph_memory.hpp"
#include "tests/simcuda/driver/graph_table.hpp"
#include "tests/simcuda/driver/own_memory.hpp"
#include "tests/simcuda/driver/settings.hpp"

namespace simcuda {
namespace {

// What a launch runs: a copy of the graph's tasks, so that the graph may change or go [documented].
struct Executable {
  std::vector<Task> tasks;
  std::vector<Touched> touched;
  std::shared_ptr<const Graph> keeps;  // memory of memory nodes
  std::shared_ptr<OwnMemory> memory;
};

std::unordered_map<CUgraph, std::shared_ptr<Graph>>& graphs() {
  static auto& all = *new std::unordered_map<CUgraph, std::shared_ptr<Graph>>;
  return all;
}

std::unordered_map<CUgraphExec, std::shared_ptr<Executable>>& executables() {
  static auto& all = *new std::unordered_map<CUgraphExec, std::shared_ptr<Executable>>;
  return all;
}

bool visit(const GraphNode& node, std::unordered_map<const GraphNode*, int>& state,
           std::vector<const GraphNode*>& order) {
  int& mine = state[&node];
  if (mine) return mine == 2;  // 1: on the way down, so this is a circle
  mine = 1;
  for (const GraphNode* before : node.after)
    if (!visit(*before, state, order)) return false;
  state[&node] = 2;
  order.push_back(&node);
  return true;
}

CUresult instantiate(CUgraphExec* handle, CUgraph graph_handle) {
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  const auto graph = find_graph(lock, graph_handle);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  auto executable = std::make_shared<Executable>();
  if (!tasks_in_order(*graph, executable->tasks)) return CUDA_ERROR_INVALID_VALUE;
  executable->touched = touched_by(executable->tasks);
  executable->keeps = graph;
  CUresult ignored;
  if (const Context* context = current_context(ignored)) {
    executable->memory = OwnMemory::take_overhead(lock, *context->device);
    if (!executable->memory) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = reinterpret_cast<CUgraphExec>(executable.get());
  executables().emplace(*handle, std::move(executable));
  return CUDA_SUCCESS;
}

// [assumed] The nodes run one after another: an order that the edges allow. They use what is mapped at their addresses
// when they run. A library that registered the memory when it was captured still means the old one, and may hang
// [cited: fzyzcjy/torch_memory_saver #88]: so such launches are counted, and fault where a setting says so.
CUresult launch(CUgraphExec handle, CUstream stream_handle) {
  Locked lock = lock_driver();
  CUresult result;
  const StreamPointer stream = find_stream(lock, stream_handle, result);
  if (!stream) return result;
  const auto found = executables().find(handle);
  if (found == executables().end()) return CUDA_ERROR_INVALID_VALUE;
  graph_launched(lock, *found->second->keeps);
  const bool stale = is_other_memory(lock, found->second->touched);
  counters.stale_graph_launches += stale;
  const auto run = [executable = found->second, faults = stale && settings.stale_graphs_fault] {
    faults ? fault() : run_tasks(executable->tasks);
  };
  return enqueue(lock, stream, Task{CU_GRAPH_NODE_TYPE_GRAPH, run, nullptr, nullptr, found->second->touched});
}

}  // namespace

Graph::~Graph() = default;

GraphNode* Graph::add(Task task, std::vector<GraphNode*> after) {
  nodes.push_back(std::make_unique<GraphNode>(GraphNode{std::move(task), std::move(after), this}));
  return nodes.back().get();
}

bool tasks_in_order(const Graph& graph, std::vector<Task>& tasks) {
  std::unordered_map<const GraphNode*, int> state;
  std::vector<const GraphNode*> order;
  for (const auto& node : graph.nodes)
    if (!visit(*node, state, order)) return false;
  for (const GraphNode* node : order)
    if (node->task.work) tasks.push_back(node->task);
  return true;
}

std::vector<Touched> touched_by(const std::vector<Task>& tasks) {
  std::vector<Touched> all;
  for (const Task& task : tasks) all.insert(all.end(), task.touched.begin(), task.touched.end());
  return all;
}

CUgraph publish_graph(std::shared_ptr<Graph> graph) {
  const auto handle = reinterpret_cast<CUgraph>(graph.get());
  graphs().emplace(handle, std::move(graph));
  return handle;
}

std::shared_ptr<Graph> find_graph(Locked&, CUgraph handle) {
  const auto found = graphs().find(handle);
  return found == graphs().end() ? nullptr : found->second;
}

GraphNode* find_node(Locked&, CUgraphNode handle) {
  for (const auto& [graph_handle, graph] : graphs())
    for (const auto& node : graph->nodes)
      if (reinterpret_cast<CUgraphNode>(node.get()) == handle) return node.get();
  return nullptr;
}

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuGraphCreate(CUgraph* handle, unsigned flags) {
  SIMCUDA_CALL(kContextless);
  if (!handle || flags) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  *handle = publish_graph(std::make_shared<Graph>());
  return CUDA_SUCCESS;
}

extern "C" CUresult cuGraphDestroy(CUgraph handle) {
  SIMCUDA_CALL(kContextless);
  std::shared_ptr<Graph> graph;  // let go after the lock: its memory nodes need it
  Locked lock = lock_driver();
  const auto found = graphs().find(handle);
  if (found == graphs().end()) return CUDA_ERROR_INVALID_VALUE;
  graph = std::move(found->second);
  graphs().erase(found);
  lock.unlock();
  return CUDA_SUCCESS;
}

extern "C" CUresult cuGraphInstantiate(CUgraphExec* executable, CUgraph graph, CUgraphNode* error_node, char*, size_t) {
  SIMCUDA_CALL(kOrdinary);
  if (error_node) *error_node = nullptr;
  return instantiate(executable, graph);
}

extern "C" CUresult cuGraphInstantiate_v2(CUgraphExec* executable, CUgraph graph, CUgraphNode* error_node, char*,
                                          size_t) {
  SIMCUDA_CALL(kOrdinary);
  if (error_node) *error_node = nullptr;
  return instantiate(executable, graph);
}

extern "C" CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long flags) {
  SIMCUDA_CALL(kOrdinary);
  // Memory of memory nodes lives as long as graph and executables here, so that it is freed on launch changes nothing.
  if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) return refuse("cuGraphInstantiateWithFlags: device launch");
  return instantiate(executable, graph);
}

extern "C" CUresult cuGraphInstantiateWithParams(CUgraphExec* executable, CUgraph graph,
                                                 CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  SIMCUDA_CALL(kOrdinary);
  if (!parameters) return CUDA_ERROR_INVALID_VALUE;
  if (parameters->flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
    return refuse("cuGraphInstantiateWithParams: device launch");
  parameters->hErrNode_out = nullptr;
  const CUresult result = instantiate(executable, graph);
  parameters->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}
SIMCUDA_PER_THREAD_STREAM(cuGraphInstantiateWithParams, _ptsz,
                          (CUgraphExec * executable, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters),
                          (executable, graph, parameters))

extern "C" CUresult cuGraphUpload(CUgraphExec handle, CUstream stream_handle) {
  SIMCUDA_CALL(kOrdinary);
  Locked lock = lock_driver();
  CUresult result;
  if (!find_stream(lock, stream_handle, result)) return result;
  return executables().contains(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SIMCUDA_PER_THREAD_STREAM(cuGraphUpload, _ptsz, (CUgraphExec executable, CUstream stream), (executable, stream))

extern "C" CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  SIMCUDA_CALL(kOrdinary);
  return launch(executable, stream);
}
SIMCUDA_PER_THREAD_STREAM(cuGraphLaunch, _ptsz, (CUgraphExec executable, CUstream stream), (executable, stream))

// [documented] Launches that go on are not disturbed.
extern "C" CUresult cuGraphExecDestroy(CUgraphExec handle) {
  SIMCUDA_CALL(kContextless);
  std::shared_ptr<Executable> executable;
  Locked lock = lock_driver();
  const auto found = executables().find(handle);
  if (found == executables().end()) return CUDA_ERROR_INVALID_VALUE;
  executable = std::move(found->second);
  executables().erase(found);
  lock.unlock();
  return CUDA_SUCCESS;
}
