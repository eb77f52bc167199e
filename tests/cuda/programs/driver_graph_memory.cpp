// Memory of allocation nodes, added one by one and captured: freed inside its graph, freed from outside and made anew
// by the next launch, freed by another graph, of a graph that was never launched, and what a launch leaves behind when
// its graph ends: only that is lost.
// harness: leaks=graph:2
// harness: leak-sites=left_behind,captured_and_left
#include "../driver_program.hpp"

namespace {

constexpr size_t kBytes = 1 << 20;

CUdeviceptr add_allocation(CUgraph graph, CUgraphNode* node) {
  CUDA_MEM_ALLOC_NODE_PARAMS wanted{};
  wanted.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.bytesize = kBytes;
  NEED(cuGraphAddMemAllocNode(node, graph, nullptr, 0, &wanted));
  ++made.graph;
  return wanted.dptr;
}

CUgraph new_graph() {
  CUgraph graph = nullptr;
  NEED(cuGraphCreate(&graph, 0));
  return graph;
}

CUgraphExec executable_of(CUgraph graph) {
  CUgraphExec executable = nullptr;
  NEED(cuGraphInstantiate(&executable, graph, 0));
  return executable;
}

void launch(CUgraphExec executable, CUstream stream) {
  NEED(cuGraphLaunch(executable, stream));
  NEED(cuStreamSynchronize(stream));
}

void end(CUgraph graph, CUgraphExec executable) {
  NEED(cuGraphExecDestroy(executable));
  NEED(cuGraphDestroy(graph));
}

void freed_inside(CUstream stream) {
  const CUgraph graph = new_graph();
  CUgraphNode node = nullptr, freed = nullptr;
  const CUdeviceptr block = add_allocation(graph, &node);
  NEED(cuGraphAddMemFreeNode(&freed, graph, &node, 1, block));
  const CUgraphExec executable = executable_of(graph);
  for (int round = 0; round < 3; ++round) launch(executable, stream);
  end(graph, executable);
}

// Each launch after a free makes it anew.
void freed_outside(CUstream stream) {
  const CUgraph graph = new_graph();
  CUgraphNode node = nullptr;
  const CUdeviceptr block = add_allocation(graph, &node);
  const CUgraphExec executable = executable_of(graph);
  launch(executable, stream);
  NEED(cuMemsetD32(block, 7, kBytes / 4));
  say("it holds %s", contents(block, kBytes).c_str());
  SHOW(cuMemFree(block));
  ++made.graph;
  launch(executable, stream);
  SHOW(cuMemFreeAsync(block, stream));
  ++made.graph;
  launch(executable, stream);
  end(graph, executable);
  SHOW(cuMemFree(block));
}

void freed_by_another_graph(CUstream stream) {
  const CUgraph graph = new_graph(), other = new_graph();
  CUgraphNode node = nullptr, freed = nullptr;
  const CUdeviceptr block = add_allocation(graph, &node);
  NEED(cuGraphAddMemFreeNode(&freed, other, nullptr, 0, block));
  const CUgraphExec executable = executable_of(graph), freeing = executable_of(other);
  launch(executable, stream);
  launch(freeing, stream);
  ++made.graph;
  launch(executable, stream);
  launch(freeing, stream);
  end(other, freeing);
  end(graph, executable);
}

void never_launched() {
  const CUgraph graph = new_graph();
  CUgraphNode node = nullptr;
  add_allocation(graph, &node);
  end(graph, executable_of(graph));
}

void left_behind(CUstream stream) {
  const CUgraph graph = new_graph();
  CUgraphNode node = nullptr;
  CUgraphNodeParams wanted{};
  wanted.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  wanted.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.alloc.bytesize = kBytes;
  NEED(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &wanted));
  ++made.graph;
  const CUgraphExec executable = executable_of(graph);
  launch(executable, stream);
  end(graph, executable);
}

CUgraph captured(CUstream stream, bool freed) {
  CUgraph graph = nullptr;
  CUdeviceptr block = 0;
  NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  NEED(cuMemAllocAsync(&block, kBytes, stream));
  ++made.graph;
  NEED(cuMemsetD8Async(block, 1, kBytes, stream));
  if (freed) NEED(cuMemFreeAsync(block, stream));
  NEED(cuStreamEndCapture(stream, &graph));
  return graph;
}

void captured_and_freed(CUstream stream) {
  const CUgraph graph = captured(stream, true);
  const CUgraphExec executable = executable_of(graph);
  for (int round = 0; round < 2; ++round) launch(executable, stream);
  end(graph, executable);
}

void captured_and_left(CUstream stream) {
  const CUgraph graph = captured(stream, false);
  const CUgraphExec executable = executable_of(graph);
  launch(executable, stream);
  end(graph, executable);
}

// A capture that is joined by another stream is of that one's graph too.
void captured_on_a_joined_stream(CUstream stream) {
  CUstream other = nullptr;
  CUevent forked = nullptr, joined = nullptr;
  NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  NEED(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
  NEED(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
  NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  NEED(cuEventRecord(forked, stream));
  NEED(cuStreamWaitEvent(other, forked, 0));
  CUdeviceptr block = 0;
  NEED(cuMemAllocAsync(&block, kBytes, other));
  ++made.graph;
  NEED(cuMemFreeAsync(block, other));
  NEED(cuEventRecord(joined, other));
  NEED(cuStreamWaitEvent(stream, joined, 0));
  CUgraph graph = nullptr;
  NEED(cuStreamEndCapture(stream, &graph));
  const CUgraphExec executable = executable_of(graph);
  launch(executable, stream);
  end(graph, executable);
  NEED(cuEventDestroy(forked));
  NEED(cuEventDestroy(joined));
  NEED(cuStreamDestroy(other));
}

// What was captured is no graph when the capture fails, whether another one that goes on meanwhile ends well or not.
void captured_in_vain(CUstream stream, CUstream beside) {
  CUstream other = nullptr;
  CUevent forked = nullptr;
  NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  NEED(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
  if (beside) NEED(cuStreamBeginCapture(beside, CU_STREAM_CAPTURE_MODE_GLOBAL));
  NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUdeviceptr block = 0;
  NEED(cuMemAllocAsync(&block, kBytes, stream));
  ++made.graph;
  NEED(cuEventRecord(forked, stream));
  NEED(cuStreamWaitEvent(other, forked, 0));
  NEED(cuMemsetD8Async(block, 1, kBytes, other));
  CUgraph graph = nullptr;
  SHOW(cuStreamEndCapture(stream, &graph));
  say("a graph: %s", yes_no(graph != nullptr));
  if (beside) {
    NEED(cuStreamEndCapture(beside, &graph));
    NEED(cuGraphDestroy(graph));
  }
  NEED(cuEventDestroy(forked));
  NEED(cuStreamDestroy(other));
}

// By a capture that comes after the graph is gone, whose launches go on making it. The capture itself frees nothing.
void freed_by_a_capture_after_its_graph(CUstream stream) {
  const CUgraph graph = new_graph();
  CUgraphNode node = nullptr;
  const CUdeviceptr block = add_allocation(graph, &node);
  const CUgraphExec executable = executable_of(graph);
  launch(executable, stream);
  NEED(cuGraphDestroy(graph));
  CUgraph freeing = nullptr;
  NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  SHOW(cuMemFreeAsync(block, stream));
  NEED(cuStreamEndCapture(stream, &freeing));
  const CUgraphExec executable_of_free = executable_of(freeing);
  for (int round = 0; round < 2; ++round) {
    launch(executable_of_free, stream);
    ++made.graph;
    launch(executable, stream);
  }
  launch(executable_of_free, stream);
  NEED(cuGraphExecDestroy(executable));
  end(freeing, executable_of_free);
}

// A destroy that is refused ends nothing.
struct Ends {
  CUgraph graph;
  CUgraphExec executable;
  CUresult answers[2];
};
void try_to_end(void* argument) {
  Ends& ends = *static_cast<Ends*>(argument);
  ends.answers[0] = cuGraphDestroy(ends.graph);
  ends.answers[1] = cuGraphExecDestroy(ends.executable);
}
void refused_to_end(CUstream stream) {
  const CUgraph graph = new_graph();
  CUgraphNode node = nullptr;
  const CUdeviceptr block = add_allocation(graph, &node);
  Ends ends{graph, executable_of(graph), {}};
  NEED(cuLaunchHostFunc(stream, try_to_end, &ends));
  NEED(cuStreamSynchronize(stream));
  for (const CUresult answer : ends.answers) say("ending it: %d", answer);
  launch(ends.executable, stream);
  SHOW(cuMemFree(block));
  ++made.graph;
  launch(ends.executable, stream);
  SHOW(cuMemFree(block));
  end(graph, ends.executable);
}

// On another stream than those that capture it is stream-ordered memory as ever.
void beside_a_capture(CUstream stream) {
  CUstream other = nullptr;
  NEED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CUdeviceptr block = 0;
  SHOW_MADE(async, cuMemAllocAsync(&block, kBytes, other));
  SHOW(cuMemFreeAsync(block, other));
  CUgraph graph = nullptr;
  NEED(cuStreamEndCapture(stream, &graph));
  NEED(cuGraphDestroy(graph));
  NEED(cuStreamSynchronize(other));
  NEED(cuStreamDestroy(other));
}

void show_attributes() {
  cuuint64_t used = 0, zero = 0;
  NEED(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
  say("used for graphs: %s", yes_no(used > 0));
  SHOW(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
  SHOW(cuDeviceGraphMemTrim(0));
}

}  // namespace

int main() {
  primary_context();
  CUstream stream = nullptr;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  freed_inside(stream);
  freed_outside(stream);
  freed_by_another_graph(stream);
  never_launched();
  captured_and_freed(stream);
  captured_on_a_joined_stream(stream);
  freed_by_a_capture_after_its_graph(stream);
  refused_to_end(stream);
  beside_a_capture(stream);
  left_behind(stream);
  captured_and_left(stream);
  CUstream beside = nullptr;
  NEED(cuStreamCreate(&beside, CU_STREAM_NON_BLOCKING));
  for (const CUstream goes_on : {CUstream{}, beside}) captured_in_vain(stream, goes_on);  // no address may come again
  NEED(cuStreamDestroy(beside));
  show_attributes();
  NEED(cuStreamDestroy(stream));
  return finish();
}
