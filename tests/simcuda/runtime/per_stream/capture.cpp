// Stream capture, and graphs put on a stream.
#include "per_stream.hpp"

using namespace simcuda_runtime;

static_assert(sizeof(cudaGraphEdgeData) == sizeof(CUgraphEdgeData));
static_assert(sizeof(cudaGraphInstantiateParams) == sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS));

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return in_context([&] {
    return DRIVER_ON_STREAM(cuStreamBeginCapture, 10010, 10010)(stream, static_cast<CUstreamCaptureMode>(mode));
  });
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                          const cudaGraphEdgeData* edges, size_t count, cudaStreamCaptureMode mode) {
  return in_context([&] {
    return DRIVER_ON_STREAM(cuStreamBeginCaptureToGraph, 12030, 12030)(stream, graph, dependencies,
                                                                       reinterpret_cast<const CUgraphEdgeData*>(edges),
                                                                       count, static_cast<CUstreamCaptureMode>(mode));
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return in_context([&] { return DRIVER_ON_STREAM(cuStreamEndCapture, 10000, 10000)(stream, graph); });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return in_context([&] {
    return DRIVER_ON_STREAM(cuStreamIsCapturing, 10000, 10000)(stream,
                                                               reinterpret_cast<CUstreamCaptureStatus*>(status));
  });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* count) {
  return in_context([&] {
    return DRIVER_ON_STREAM(cuStreamGetCaptureInfo, 12030, 12030)(
        stream, reinterpret_cast<CUstreamCaptureStatus*>(status), reinterpret_cast<cuuint64_t*>(id), graph,
        dependencies, reinterpret_cast<const CUgraphEdgeData**>(edges), count);
  });
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* dependencies,
                                                const cudaGraphEdgeData* edges, size_t count, unsigned int flags) {
  return in_context([&] {
    return DRIVER_ON_STREAM(cuStreamUpdateCaptureDependencies, 12030, 12030)(
        stream, dependencies, reinterpret_cast<const CUgraphEdgeData*>(edges), count, flags);
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return in_context([&] { return DRIVER_ON_STREAM(cuGraphLaunch, 10000, 10000)(executable, stream); });
}

cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t* executable, cudaGraph_t graph,
                                           cudaGraphInstantiateParams* parameters) {
  return in_context([&] {
    return DRIVER_ON_STREAM(cuGraphInstantiateWithParams, 12000, 12000)(
        executable, graph, reinterpret_cast<CUDA_GRAPH_INSTANTIATE_PARAMS*>(parameters));
  });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
  return in_context([&] { return DRIVER_ON_STREAM(cuGraphUpload, 11010, 11010)(executable, stream); });
}

}  // extern "C"
