// Graphs: work that is recorded first and launched later. A task is the unit of work: a stream runs it, or a graph
// keeps it as a node.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <unordered_set>
#include <vector>

#include "tests/simcuda/driver/simcuda.hpp"
#include "tests/simcuda/driver/touched.hpp"

namespace simcuda {

struct Graph;
struct Context;

struct Task {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  std::function<void()> work;
  std::shared_ptr<void> parameters = nullptr;  // of the node, as the program may ask for them
  Context* context = nullptr;
  std::vector<Touched> touched{};
};

struct GraphNode {
  Task task;
  std::vector<GraphNode*> after;
  Graph* graph = nullptr;
};

struct Graph {
  ~Graph();
  std::vector<std::unique_ptr<GraphNode>> nodes;  // each after those that it depends on, unless edges were added later
  std::vector<std::shared_ptr<Graph>> children;
  std::map<uintptr_t, std::shared_ptr<void>> owned;  // memory of its allocation nodes
  std::set<uintptr_t> freed;                         // by its free nodes

  GraphNode* add(Task task, std::vector<GraphNode*> after);
};

// Every task, those of the child graphs among them, in an order that keeps the edges. False: the edges form a circle.
bool tasks_in_order(const Graph& graph, std::vector<Task>& tasks);

// The virtual memory that any of the tasks touches.
std::vector<Touched> touched_by(const std::vector<Task>& tasks);

// Keeps the graph under a handle that the program gets.
CUgraph publish_graph(std::shared_ptr<Graph> graph);

}  // namespace simcuda
