// Each way to begin a capture, those of later toolkits among them, and memory that is freed inside of it: the capture
// goes on, and ends well. (A free of a block that is kept for reuse waits for the device, which would break it off.)
#include <dlfcn.h>

#include "../driver_program.hpp"

namespace {

constexpr size_t kBytes = 1 << 20;

template <class Function>
Function* later(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

CUgraph a_graph() {
  CUgraph graph = nullptr;
  NEED(cuGraphCreate(&graph, 0));
  return graph;
}

CUresult end_to_graph(CUstream stream) {
  CUgraph graph = nullptr;
  const CUresult code = cuStreamEndCapture(stream, &graph);
  if (graph) cuGraphDestroy(graph);
  return code;
}
CUresult end_to_cig(CUstream stream) {
  auto* const end = later<CUresult(CUstream)>("cuStreamEndCaptureToCig");
  return end ? end(stream) : CUDA_ERROR_NOT_FOUND;
}

struct Way {
  const char* name;
  CUresult (*begin)(CUstream stream);
  CUresult (*end)(CUstream stream);
};
const Way kWays[] = {
    {"as ever", [](CUstream stream) { return cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED); },
     end_to_graph},
    {"into a graph again",
     [](CUstream stream) {
       using Begin = CUresult(CUstream, CUstreamCaptureMode, CUgraph, void*, void*);
       auto* const begin = later<Begin>("cuStreamBeginRecaptureToGraph");
       if (!begin) return CUDA_ERROR_NOT_FOUND;
       static CUgraph graph = a_graph();
       return begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED, graph, nullptr, nullptr);
     },
     end_to_graph},
    {"to a Cig",
     [](CUstream stream) {
       static int parameters = 0;
       auto* const begin = later<CUresult(CUstream, void*)>("cuStreamBeginCaptureToCig");
       return begin ? begin(stream, &parameters) : CUDA_ERROR_NOT_FOUND;
     },
     end_to_cig},
};

}  // namespace

int main() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  NEED(cuInit(0));
  NEED(cuDeviceGet(&device, 0));
  NEED(cuDevicePrimaryCtxRetain(&context, device));
  NEED(cuCtxSetCurrent(context));
  CUstream stream = nullptr;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  NEED(cuThreadExchangeStreamCaptureMode(&mode));
  for (const Way& way : kWays) {
    CUdeviceptr block = 0, target = 0;
    NEED(cuMemAlloc(&block, kBytes));
    NEED(cuMemAlloc(&target, kBytes));
    say("%s: begun: %s", way.name, name_of(way.begin(stream)));
    say("work: %s", name_of(cuMemsetD8Async(target, 1, kBytes, stream)));
    say("freed: %s", name_of(cuMemFree(block)));
    say("ended: %s", name_of(way.end(stream)));
    NEED(cuMemFree(target));
  }
  made.device += 6;
  NEED(cuStreamDestroy(stream));
  return finish();
}
