// cuStreamBeginCapture to cuStreamEndCapture, and what is forbidden between.
#include "tests/simcuda/driver/capture.hpp"

#include <atomic>
#include <unordered_set>

#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/settings.hpp"
#include "tests/simcuda/driver/thread_state.hpp"

namespace simcuda {
namespace {

constinit std::atomic<int> captures_going_on{0};

bool forbids_unsafe_calls(const Capture& capture, const ThreadState& thread) {
  if (thread.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (capture.thread == thread.id) return capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
  return thread.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

template <typename Condition>
bool invalidate_where(Locked& lock, Condition condition) {
  bool any = false;
  for (Capture* capture : driver().captures) {
    if (!condition(*capture)) continue;
    invalidate(lock, *capture);
    any = true;
  }
  return any;
}

void leave(Stream& stream) {
  stream.capture = nullptr;
  stream.capture_tail.clear();
}

// All streams that took part leave, so the last reference to the capture may go with them.
void finish(Locked&, const std::shared_ptr<Capture>& capture) {
  driver().captures.erase(capture.get());
  --captures_going_on;
  for (const StreamPointer& stream : capture->streams) leave(*stream);
}

void add_ancestors(GraphNode* node, std::unordered_set<GraphNode*>& found) {
  if (!found.insert(node).second) return;
  for (GraphNode* before : node->after) add_ancestors(before, found);
}

// [documented] Every stream that joined must have been joined back to the origin: its last nodes lie before those of
// the origin.
bool all_work_is_joined(const Capture& capture, const Stream& origin) {
  std::unordered_set<GraphNode*> joined;
  for (GraphNode* node : origin.capture_tail) add_ancestors(node, joined);
  for (const StreamPointer& stream : capture.streams)
    for (GraphNode* node : stream->capture_tail)
      if (!joined.contains(node)) return false;
  return true;
}

CUresult begin(CUstream handle, CUstreamCaptureMode mode) {
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  CUresult result;
  const StreamPointer stream = find_stream(lock, handle, result);
  if (!stream) return result;
  // [documented] The legacy stream cannot be captured.
  if (stream->kind == StreamKind::kLegacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  const auto capture = std::make_shared<Capture>();
  capture->id = ++driver().last_id;
  capture->graph = std::make_shared<Graph>();
  capture->mode = mode;
  capture->thread = this_thread().id;
  capture->origin = stream.get();
  capture->streams = {stream};
  stream->capture = capture;
  stream->capture_tail.clear();
  driver().captures.insert(capture.get());
  ++captures_going_on;
  return CUDA_SUCCESS;
}

CUresult end(CUstream handle, CUgraph* graph) {
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  *graph = nullptr;
  Locked lock = lock_driver();
  CUresult result;
  const StreamPointer stream = find_stream(lock, handle, result);
  if (!stream) return result;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream.get()) {
    invalidate(lock, *capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  // [documented] Unless it is relaxed, a capture is ended by the thread that began it.
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != this_thread().id) {
    invalidate(lock, *capture);
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  const bool joined = all_work_is_joined(*capture, *stream);
  finish(lock, capture);
  if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!joined) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  *graph = publish_graph(capture->graph);
  return CUDA_SUCCESS;
}

struct CaptureAnswer {
  CUstreamCaptureStatus* status;
  cuuint64_t* id = nullptr;
  CUgraph* graph = nullptr;
  const CUgraphNode** nodes = nullptr;  // valid until the next call in the stream [documented]
  size_t* node_count = nullptr;
};

CUresult describe(CUstream handle, const CaptureAnswer& answer) {
  if (!answer.status) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  CUresult result;
  const StreamPointer stream = find_stream(lock, handle, result);
  if (!stream) return result;
  // [documented] Asked of the legacy stream while a blocking stream is being captured: 906.
  if (stream->kind == StreamKind::kLegacy)
    for (const Capture* capture : driver().captures)
      for (const StreamPointer& other : capture->streams)
        if (other->context == stream->context && other->blocking()) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  const Capture* capture = stream->capture.get();
  const bool active = capture && !capture->invalidated;
  *answer.status = active    ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                   : capture ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                             : CU_STREAM_CAPTURE_STATUS_NONE;
  if (!active) return CUDA_SUCCESS;
  if (answer.id) *answer.id = capture->id;
  if (answer.graph) *answer.graph = reinterpret_cast<CUgraph>(capture->graph.get());
  if (answer.nodes) *answer.nodes = reinterpret_cast<const CUgraphNode*>(stream->capture_tail.data());
  if (answer.node_count) *answer.node_count = stream->capture_tail.size();
  return CUDA_SUCCESS;
}

}  // namespace

bool any_capture() { return captures_going_on.load(std::memory_order_relaxed) > 0; }

void invalidate(Locked&, Capture& capture) {
  if (!capture.invalidated) ++counters.invalidated_captures;
  capture.invalidated = true;
}

bool unsafe_call_is_forbidden(Locked& lock) {
  return invalidate_where(lock, [](const Capture& capture) { return forbids_unsafe_calls(capture, this_thread()); });
}

bool invalidate_blocking_captures(Locked& lock, Context& context) {
  return invalidate_where(lock, [&](const Capture& capture) {
    for (const StreamPointer& stream : capture.streams)
      if (stream->context == &context && stream->blocking()) return true;
    return false;
  });
}

bool invalidate_captures_of(Locked& lock, Context& context) {
  return invalidate_where(lock, [&](const Capture& capture) {
    for (const StreamPointer& stream : capture.streams)
      if (stream->context == &context) return true;
    return false;
  });
}

void abandon_capture(Locked& lock, Stream& stream) {
  const std::shared_ptr<Capture> capture = stream.capture;
  invalidate(lock, *capture);
  if (capture->origin == &stream)
    finish(lock, capture);
  else
    leave(stream);
}

CUresult capture_task(Locked&, Stream& stream, Task task) {
  if (stream.capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  GraphNode* const node = stream.capture->graph->add(std::move(task), stream.capture_tail);
  stream.capture_tail.assign(1, node);
  return CUDA_SUCCESS;
}

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuStreamBeginCapture(CUstream stream) {
  SIMCUDA_CALL(kOrdinary);
  return begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
SIMCUDA_PER_THREAD_STREAM(cuStreamBeginCapture, _ptsz, (CUstream stream), (stream))

extern "C" CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  SIMCUDA_CALL(kOrdinary);
  return begin(stream, mode);
}
SIMCUDA_PER_THREAD_STREAM(cuStreamBeginCapture_v2, _ptsz, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))

// Of later toolkits than the headers. A capture of either kind goes like any other; what differs is where its graph
// goes. [assumed] One that ends in a Cig has the mode of an ordinary begin.
extern "C" CUresult cuStreamBeginRecaptureToGraph(CUstream stream, CUstreamCaptureMode mode, CUgraph graph, void*,
                                                  void*) {
  SIMCUDA_CALL(kOrdinary);
  return graph ? begin(stream, mode) : CUDA_ERROR_INVALID_VALUE;
}
SIMCUDA_PER_THREAD_STREAM(cuStreamBeginRecaptureToGraph, _ptsz,
                          (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, void* callback, void* data),
                          (stream, mode, graph, callback, data))

extern "C" CUresult cuStreamBeginCaptureToCig(CUstream stream, void* parameters) {
  SIMCUDA_CALL(kOrdinary);
  return parameters ? begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) : CUDA_ERROR_INVALID_VALUE;
}
SIMCUDA_PER_THREAD_STREAM(cuStreamBeginCaptureToCig, _ptsz, (CUstream stream, void* parameters), (stream, parameters))

extern "C" CUresult cuStreamEndCaptureToCig(CUstream stream) {
  SIMCUDA_CALL(kOrdinary);
  CUgraph graph = nullptr;
  return end(stream, &graph);
}
SIMCUDA_PER_THREAD_STREAM(cuStreamEndCaptureToCig, _ptsz, (CUstream stream), (stream))

extern "C" CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  SIMCUDA_CALL(kOrdinary);
  return end(stream, graph);
}
SIMCUDA_PER_THREAD_STREAM(cuStreamEndCapture, _ptsz, (CUstream stream, CUgraph* graph), (stream, graph))

extern "C" CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  SIMCUDA_CALL(kOrdinary);
  return describe(stream, {.status = status});
}
SIMCUDA_PER_THREAD_STREAM(cuStreamIsCapturing, _ptsz, (CUstream stream, CUstreamCaptureStatus* status),
                          (stream, status))

extern "C" CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id) {
  SIMCUDA_CALL(kOrdinary);
  return describe(stream, {.status = status, .id = id});
}
SIMCUDA_PER_THREAD_STREAM(cuStreamGetCaptureInfo, _ptsz,
                          (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id), (stream, status, id))

extern "C" CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                              CUgraph* graph, const CUgraphNode** nodes, size_t* node_count) {
  SIMCUDA_CALL(kOrdinary);
  return describe(stream, {status, id, graph, nodes, node_count});
}
SIMCUDA_PER_THREAD_STREAM(cuStreamGetCaptureInfo_v2, _ptsz,
                          (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                           const CUgraphNode** nodes, size_t* node_count),
                          (stream, status, id, graph, nodes, node_count))

#if CUDA_VERSION >= 12030
extern "C" CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                              CUgraph* graph, const CUgraphNode** nodes, const CUgraphEdgeData** edges,
                                              size_t* node_count) {
  SIMCUDA_CALL(kOrdinary);
  if (edges) *edges = nullptr;  // [documented] no edge has data
  return describe(stream, {status, id, graph, nodes, node_count});
}
SIMCUDA_PER_THREAD_STREAM(cuStreamGetCaptureInfo_v3, _ptsz,
                          (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                           const CUgraphNode** nodes, const CUgraphEdgeData** edges, size_t* node_count),
                          (stream, status, id, graph, nodes, edges, node_count))
#endif

extern "C" CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  SIMCUDA_CALL(kContextless);
  if (!mode || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, this_thread().capture_mode);
  return CUDA_SUCCESS;
}
