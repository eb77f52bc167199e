// Functions that streams and graphs run, put there in each way: no call of CUDA may be made in them, and of those that
// the program makes all the same each gets its native answer, and none is added. What a node has can be asked for.
// harness: simulator-only
#include <dlfcn.h>

#include "../driver_program.hpp"

namespace {

constexpr size_t kBytes = 8192;

struct Things {
  CUstream stream;
  CUdeviceptr block;
  void* pinned;
  std::atomic<int> runs{0}, refused{0};
};

// What a pool would serve, what it would take, and what is asked, copied and enqueued beside.
void attempt(void* argument) {
  Things& things = *static_cast<Things*>(argument);
  CUdeviceptr more = 0;
  void* host = nullptr;
  size_t available = 0, total = 0;
  unsigned word = 0;
  CUcontext context = nullptr;
  for (const CUresult code :
       {cuMemAlloc(&more, kBytes), cuMemFree(things.block), cuMemAllocHost(&host, 100), cuMemFreeHost(things.pinned),
        cuMemAllocAsync(&more, kBytes, things.stream), cuMemFreeAsync(things.block, things.stream),
        cuMemAllocManaged(&more, kBytes, CU_MEM_ATTACH_GLOBAL), cuMemGetInfo(&available, &total),
        cuMemcpyDtoH(&word, things.block, sizeof word), cuMemcpy(things.block, things.block + 64, 64),
        cuMemsetD8(things.block, 1, kBytes), cuCtxGetCurrent(&context), cuCtxSynchronize(),
        cuStreamSynchronize(things.stream)})
    things.refused += code == CUDA_ERROR_NOT_PERMITTED;
  free(malloc(100000));
  ++things.runs;
}
void call_back(CUstream, CUresult, void* argument) { attempt(argument); }
void another(void* argument) { ++static_cast<Things*>(argument)->runs; }

void run(CUgraph graph, CUstream stream) {
  CUgraphExec executable = nullptr;
  NEED(cuGraphInstantiate(&executable, graph, 0));
  for (int round = 0; round < 2; ++round) NEED(cuGraphLaunch(executable, stream));
  NEED(cuStreamSynchronize(stream));
  NEED(cuGraphExecDestroy(executable));
  NEED(cuGraphDestroy(graph));
}

CUgraph new_graph() {
  CUgraph graph = nullptr;
  NEED(cuGraphCreate(&graph, 0));
  return graph;
}

void launched(Things& things) { SHOW(cuLaunchHostFunc(things.stream, attempt, &things)); }

void launched_later(Things& things) {
  using Launch = CUresult(CUstream, CUhostFn, void*, unsigned);
  auto* const launch = reinterpret_cast<Launch*>(dlsym(RTLD_DEFAULT, "cuLaunchHostFunc_v2"));
  SHOW(launch(things.stream, attempt, &things, 0));
}

void called_back(Things& things) {
  SHOW(cuStreamAddCallback(things.stream, call_back, &things, 0));
  SHOW(cuStreamAddCallback(things.stream, call_back, &things, 7));
  SHOW(cuStreamAddCallback(things.stream, nullptr, &things, 0));
  SHOW(cuLaunchHostFunc(things.stream, nullptr, &things));
}

void captured(Things& things) {
  CUgraph graph = nullptr;
  NEED(cuStreamBeginCapture(things.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  SHOW(cuLaunchHostFunc(things.stream, attempt, &things));
  NEED(cuStreamEndCapture(things.stream, &graph));
  run(graph, things.stream);
}

void added(Things& things) {
  const CUgraph graph = new_graph();
  CUgraphNode node = nullptr;
  CUDA_HOST_NODE_PARAMS host{another, &things}, found{};
  NEED(cuGraphAddHostNode(&node, graph, nullptr, 0, &host));
  NEED(cuGraphHostNodeGetParams(node, &found));
  say("what was passed: %s", yes_no(found.fn == another && found.userData == &things));
  host.fn = attempt;
  NEED(cuGraphHostNodeSetParams(node, &host));
  NEED(cuGraphHostNodeGetParams(node, &found));
  say("what was changed: %s", yes_no(found.fn == attempt && found.userData == &things));
  run(graph, things.stream);
}

void added_as_any(Things& things) {
  const CUgraph graph = new_graph();
  CUgraphNode node = nullptr;
  CUDA_HOST_NODE_PARAMS found{};
#if CUDA_VERSION >= 13000
  CUgraphNodeParams host{};
  host.type = CU_GRAPH_NODE_TYPE_HOST;
  host.host.fn = attempt;
  host.host.userData = &things;
  NEED(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &host));
  say("the parameters are as they were: %s", yes_no(host.host.fn == attempt));
  using GetParams = CUresult(CUgraphNode, CUgraphNodeParams*);
  CUgraphNodeParams any{};
  NEED(reinterpret_cast<GetParams*>(dlsym(RTLD_DEFAULT, "cuGraphNodeGetParams"))(node, &any));
  say("what any node has: %s", yes_no(any.host.fn == attempt && any.host.userData == &things));
#else
  CUDA_HOST_NODE_PARAMS host{attempt, &things};
  NEED(cuGraphAddHostNode(&node, graph, nullptr, 0, &host));
#endif
  NEED(cuGraphHostNodeGetParams(node, &found));
  say("what was passed: %s", yes_no(found.fn == attempt && found.userData == &things));
  run(graph, things.stream);
}

}  // namespace

int main() {
  primary_context();
  Things things;
  NEED(cuStreamCreate(&things.stream, CU_STREAM_NON_BLOCKING));
  things.block = device_block(kBytes);
  NEED(cuMemAllocHost(&things.pinned, 100));
  ++made.pinned;
  NEED(cuMemFree(device_block(kBytes)));  // a pool has one to give
  NEED(cuCtxSynchronize());
  for (void (*way)(Things&) : {launched, launched_later, called_back, captured, added, added_as_any}) {
    const long long before = simcuda_value("calls_in_host_functions");
    way(things);
    NEED(cuStreamSynchronize(things.stream));
    say("it ran %d times, %d calls were refused, the driver saw %lld", things.runs.exchange(0),
        things.refused.exchange(0), simcuda_value("calls_in_host_functions") - before);
  }
  SHOW(cuMemFree(things.block));
  SHOW(cuMemFreeHost(things.pinned));
  NEED(cuStreamDestroy(things.stream));
  return finish();
}
