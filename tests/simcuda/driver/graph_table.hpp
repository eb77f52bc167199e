// Graphs and nodes by the handles that the program has.
#pragma once
#include <memory>

#include "tests/simcuda/driver/driver.hpp"
#include "tests/simcuda/driver/graph.hpp"

namespace simcuda {

std::shared_ptr<Graph> find_graph(Locked&, CUgraph handle);
GraphNode* find_node(Locked&, CUgraphNode handle);

}  // namespace simcuda
