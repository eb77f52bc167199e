// Functions of the program's that streams and graphs run. No call of CUDA may be made in them, and which of those the
// driver refuses is not said [CUDA driver API, cuLaunchHostFunc]. So ours calls them, and it is known that this thread
// is in one: calls of our own are refused there (in_host_function), and the program's get what the driver answers.
#pragma once
#include "backends/cuda/functions.hpp"

namespace cistern::cuda {

struct CudaState;

// For a stream, which runs it once.
CUDA_HOST_NODE_PARAMS run_once(const CUDA_HOST_NODE_PARAMS& host);
struct StreamCallback {
  CUstreamCallback function;
  void* argument;
};
StreamCallback run_once(const StreamCallback& callback);
void dropped(const StreamCallback& run_once);

// For a node of a graph, which may run it any time. Copies of the node are not seen, so it is kept for good; the same
// function and argument are kept once. A program that has ever new arguments gets so many kept; further functions are
// called directly, and it is not known that a thread is in one.
constexpr std::size_t kKeptForGraphsMax = std::size_t{1} << 16;
CUDA_HOST_NODE_PARAMS run_by_graph(const CUDA_HOST_NODE_PARAMS& host);
// The call that was to take it failed.
void dropped(const CUDA_HOST_NODE_PARAMS& ours);
// The function and argument that the program passed, found by those of a node.
CUDA_HOST_NODE_PARAMS as_passed(const CUDA_HOST_NODE_PARAMS& of_node);

void host_functions_before_fork();
void host_functions_after_fork();

}  // namespace cistern::cuda
