// Memory of graphs through the runtime: captured, freed inside and left behind; added as nodes; and its figures.
// harness: leaks=graph:1
// harness: leak-sites=left_behind
// harness: per-thread
#include "../program.hpp"

constexpr size_t kBytes = 1 << 20;

static void run(cudaGraph_t graph, cudaStream_t stream) {
  cudaGraphExec_t executable = nullptr;
  NEED(cudaGraphInstantiate(&executable, graph, 0));
  NEED(cudaGraphLaunch(executable, stream));
  NEED(cudaStreamSynchronize(stream));
  NEED(cudaGraphExecDestroy(executable));
  NEED(cudaGraphDestroy(graph));
}

static cudaGraph_t captured(cudaStream_t stream, bool freed, void** block) {
  cudaGraph_t graph = nullptr;
  NEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  SHOW_MADE(graph, cudaMallocAsync(block, kBytes, stream));
  NEED(cudaMemsetAsync(*block, 1, kBytes, stream));
  if (freed) SHOW(cudaFreeAsync(*block, stream));
  NEED(cudaStreamEndCapture(stream, &graph));
  return graph;
}

static void left_behind(cudaStream_t stream) {
  void* block = nullptr;
  run(captured(stream, false, &block), stream);
  say("it holds %s", contents(block, kBytes).c_str());
}

static void added(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  cudaGraphNode_t node = nullptr, freed = nullptr;
  cudaMemAllocNodeParams wanted{};
  wanted.poolProps.allocType = cudaMemAllocationTypePinned;
  wanted.poolProps.location.type = cudaMemLocationTypeDevice;
  wanted.bytesize = kBytes;
  NEED(cudaGraphCreate(&graph, 0));
  SHOW_MADE(graph, cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &wanted));
  SHOW(cudaGraphAddMemFreeNode(&freed, graph, &node, 1, wanted.dptr));
  run(graph, stream);
}

int main() {
  cudaStream_t stream = new_stream();
  void* block = nullptr;
  run(captured(stream, true, &block), stream);
  block = nullptr;
  run(captured(stream, false, &block), stream);
  SHOW(cudaFree(block));
  added(stream);
  left_behind(stream);
  unsigned long long used = 0;
  SHOW(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &used));
  say("used for graphs: %s", yes_no(used >= kBytes));
  NEED(cudaStreamDestroy(stream));
  return finish();
}
