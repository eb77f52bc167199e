// Stream capture: while it goes on, a stream's work becomes nodes of a graph, and unsafe calls invalidate it.
#pragma once
#include <memory>
#include <vector>

#include "tests/simcuda/driver/driver.hpp"
#include "tests/simcuda/driver/graph.hpp"

namespace simcuda {

struct Stream;

struct Capture {
  uint64_t id = 0;
  std::shared_ptr<Graph> graph;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  uint64_t thread = 0;  // that began it
  Stream* origin = nullptr;
  std::vector<std::shared_ptr<Stream>> streams;
  bool invalidated = false;
};

// Whether any capture goes on; without the lock, so that calls pay nothing otherwise.
bool any_capture();
// [documented] cuThreadExchangeStreamCaptureMode: which captures forbid a potentially unsafe call of this thread. Those
// are invalidated; true if there was one.
bool unsafe_call_is_forbidden(Locked&);
void invalidate(Locked&, Capture& capture);
// Adds the task to the stream's capture. 901 if that is invalidated.
CUresult capture_task(Locked&, Stream& stream, Task task);
// Invalidates every capture of a blocking stream of the context; false if there is none.
bool invalidate_blocking_captures(Locked&, Context& context);
// Invalidates every capture in the context, as synchronising with it does; false if there is none.
bool invalidate_captures_of(Locked&, Context& context);
// The stream leaves its capture, which cannot end well then.
void abandon_capture(Locked&, Stream& stream);

}  // namespace simcuda
