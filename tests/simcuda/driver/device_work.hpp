// Runs the work of commands. A command that touches memory without access leaves a sticky error in its context.
#pragma once
#include <functional>

#include "tests/simcuda/driver/graph.hpp"

namespace simcuda {

// Runs the task for its own context, or for the stream's where it has none. After a sticky error it does nothing.
void run_task(const Task& task, Context& of_stream);
// Runs the tasks of a graph. The caller is the task that launches the graph.
void run_tasks(const std::vector<Task>& tasks);

// Leaves error 700 in the context whose command this thread runs.
void fault();

}  // namespace simcuda
