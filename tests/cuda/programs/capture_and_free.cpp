// Blocks that are freed while a stream captures in relaxed mode, with work on them pending in other streams: what is
// allocated meanwhile is not one of them too early. And a graph whose blocks live on, launched again and again between
// other allocations.
#include "../program.hpp"

constexpr size_t kBytes = 32768;

static void freed_during_capture() {
  cudaStream_t capturing = new_stream(), busy = new_stream(), other = new_stream();
  for (int round = 0; round < 4; ++round) {
    unsigned *block = device_block(kBytes), *witness = device_block(kBytes), *target = device_block(kBytes);
    fill(busy, block, kBytes, 1);
    NEED(cudaStreamSynchronize(busy));
    NEED(cudaStreamBeginCapture(capturing, cudaStreamCaptureModeRelaxed));
    NEED(launch(capturing, kBytes / 4, Fill{target, 5}));
    keep_busy(busy, 10000);
    NEED(launch(busy, kBytes / 4, Copy{block, witness}));
    say("free during a capture: %s", name_of(cudaFree(block)));
    unsigned* next = device_block(kBytes);
    fill(other, next, kBytes, 2);
    cudaGraph_t graph = nullptr;
    SHOW(cudaStreamEndCapture(capturing, &graph));
    NEED(cudaDeviceSynchronize());
    say("witness %s, next %s", contents(witness, kBytes).c_str(), contents(next, kBytes).c_str());
    NEED(cudaGraphDestroy(graph));
    for (unsigned* one : {next, witness, target}) NEED(cudaFree(one));
  }
  for (cudaStream_t stream : {capturing, busy, other}) NEED(cudaStreamDestroy(stream));
}

static void graph_with_neighbours() {
  cudaStream_t stream = new_stream();
  unsigned *data = device_block(kBytes), *copy = device_block(kBytes);
  fill(stream, data, kBytes, 100);
  NEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  NEED(launch(stream, kBytes / 4, Add{data, 1}));
  NEED(cudaMemcpyAsync(copy, data, kBytes, cudaMemcpyDeviceToDevice, stream));
  cudaGraph_t graph = nullptr;
  NEED(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t run = nullptr;
  NEED(cudaGraphInstantiate(&run, graph, 0));
  for (int round = 0; round < 5; ++round) {
    unsigned* neighbour = device_block(kBytes);
    fill(stream, neighbour, kBytes, 7);
    NEED(cudaGraphLaunch(run, stream));
    NEED(cudaFree(neighbour));
    unsigned* next = device_block(kBytes);
    fill(stream, next, kBytes, 8);
    NEED(cudaGraphLaunch(run, stream));
    NEED(cudaStreamSynchronize(stream));
    say("copy %s, neighbour %s", contents(copy, kBytes).c_str(), contents(next, kBytes).c_str());
    NEED(cudaFree(next));
  }
  NEED(cudaGraphExecDestroy(run));
  NEED(cudaGraphDestroy(graph));
  for (unsigned* one : {data, copy}) NEED(cudaFree(one));
  NEED(cudaStreamDestroy(stream));
}

// The graph is launched and its block freed while it runs.
static void freed_while_a_graph_runs() {
  cudaStream_t stream = new_stream(), other = new_stream();
  unsigned *data = device_block(kBytes), *witness = device_block(kBytes);
  fill(stream, data, kBytes, 3);
  NEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  NEED(launch(stream, 1, Spin{10000}));
  NEED(launch(stream, kBytes / 4, Copy{data, witness}));
  NEED(launch(stream, kBytes / 4, Fill{data, 99}));
  cudaGraph_t graph = nullptr;
  NEED(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t run = nullptr;
  NEED(cudaGraphInstantiate(&run, graph, 0));
  NEED(cudaGraphLaunch(run, stream));
  NEED(cudaFree(data));
  unsigned* next = device_block(kBytes);
  fill(other, next, kBytes, 4);
  NEED(cudaDeviceSynchronize());
  say("graph read %s, next %s", contents(witness, kBytes).c_str(), contents(next, kBytes).c_str());
  NEED(cudaGraphExecDestroy(run));
  NEED(cudaGraphDestroy(graph));
  for (unsigned* one : {next, witness}) NEED(cudaFree(one));
  for (cudaStream_t one : {stream, other}) NEED(cudaStreamDestroy(one));
}

int main() {
  freed_during_capture();
  graph_with_neighbours();
  freed_while_a_graph_runs();
  return finish();
}
