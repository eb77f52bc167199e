// Runs the work of commands. A command that touches memory without access leaves a sticky error in its context.
#pragma once
#include <functional>

#include "tests/simcuda/driver/graph.hpp"

namespace simcuda {

// Runs the task for its own context, or for the stream's where it has none. After a sticky error it does nothing.
void run_task(const Task& task, Context& of_stream);
// Runs the tasks of a graph. The caller is the task that launches the graph.
void run_tasks(const std::vector<Task>& tasks);

// Makes the part of a task's work that touches memory of the device. It ends at the first illegal address, as work on a
// device does: then the context has a sticky error, and the rest is not made. Objects on the stack of that part are
// lost.
void touch_memory(const std::function<void()>& part);

// Leaves a sticky error in the context whose command this thread runs, and in all others on the device.
void fault();

// From now on touch_memory() sees illegal addresses. Called before the first address is reserved, without a lock.
void catch_illegal_addresses();

}  // namespace simcuda
