// cuEvent* and cuStreamWaitEvent.
#include "tests/simcuda/driver/event.hpp"

#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/capture.hpp"
#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/ipc.hpp"
#include "tests/simcuda/driver/memory.hpp"
#include "tests/simcuda/driver/settings.hpp"

namespace simcuda {
namespace {

int64_t nanoseconds_now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

void raise_to(std::atomic<uint64_t>& value, uint64_t target) {
  uint64_t seen = value;
  while (seen < target && !value.compare_exchange_weak(seen, target)) {
  }
}

// The capture that the event was last recorded in, if that still goes on.
Capture* capture_of(const Event& event) {
  for (Capture* capture : driver().captures)
    if (capture->id == event.capture_id) return capture;
  return nullptr;
}

CUresult record(Locked& lock, Event& event, const StreamPointer& stream) {
  if (stream->kind == StreamKind::kLegacy && any_capture() && invalidate_blocking_captures(lock, *stream->context))
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  event.recorded = true;
  if (stream->capture) {
    if (stream->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    event.capture_id = stream->capture->id;
    event.capture_nodes = stream->capture_tail;
    return CUDA_SUCCESS;
  }
  event.capture_id = 0;
  EventPoint point{nullptr, event.shared, event.shared ? ++event.shared->recorded : 0,
                   std::make_shared<std::atomic<int64_t>>(0)};
  const auto reach = [point] {
    *point.nanoseconds = nanoseconds_now();
    if (point.shared) raise_to(point.shared->completed, point.target);
  };
  event.point = point;
  if (unfinished_before(lock, *stream).empty())
    reach();
  else
    event.point.marker = queue_operation(lock, stream, reach, {}, true);
  return CUDA_SUCCESS;
}

// [documented] An event of a capture cannot be queried or waited for by the host; trying it invalidates the capture.
CUresult check_not_captured(Locked& lock, const Event& event) {
  if (!event.capture_id) return CUDA_SUCCESS;
  if (Capture* capture = capture_of(event)) invalidate(lock, *capture);
  return CUDA_ERROR_CAPTURED_EVENT;
}

// [documented] A stream that waits for an event of a capture joins the capture; one that is captured cannot wait for an
// event outside it, and two captures cannot be merged.
CUresult wait_in_capture(Locked& lock, const StreamPointer& stream, const Event& event) {
  Capture* source = event.capture_id ? capture_of(event) : nullptr;
  if (event.capture_id && !source) return CUDA_ERROR_CAPTURED_EVENT;
  if (!source) {
    invalidate(lock, *stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (source->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream->kind == StreamKind::kLegacy) {
    invalidate(lock, *source);
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  if (stream->capture && stream->capture.get() != source) {
    invalidate(lock, *source);
    invalidate(lock, *stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (!stream->capture) {
    stream->capture = source->origin->capture;
    source->streams.push_back(stream);
  }
  for (GraphNode* node : event.capture_nodes) stream->capture_tail.push_back(node);
  return CUDA_SUCCESS;
}

}  // namespace

bool EventPoint::reached() const { return shared ? shared->completed >= target : !marker || marker->done(); }

void EventPoint::wait() const {
  if (marker && !shared) return marker->wait();
  while (!reached()) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

EventPoint current_point(const Event& event) {
  EventPoint point = event.point;
  if (event.shared) {
    point.shared = event.shared;
    point.target = event.shared->recorded;  // the other process may have recorded it since
  }
  return point;
}

std::shared_ptr<Event> find_event(Locked&, CUevent handle) {
  const auto found = driver().events.find(handle);
  return found == driver().events.end() ? nullptr : found->second;
}

CUevent publish_event(Locked&, std::shared_ptr<Event> event) {
  const auto handle = reinterpret_cast<CUevent>(event.get());
  driver().events.emplace(handle, std::move(event));
  ++counters.live_events;
  return handle;
}

void drop_events_of(Locked&, Context& context) {
  counters.live_events -= static_cast<long long>(
      std::erase_if(driver().events, [&](const auto& entry) { return entry.second->context == &context; }));
}

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuEventCreate(CUevent* handle, unsigned flags) {
  SIMCUDA_CALL(kOrdinary);
  // [documented] An interprocess event must have no timing.
  const bool interprocess = flags & CU_EVENT_INTERPROCESS;
  if (!handle || flags > 7 || (interprocess && !(flags & CU_EVENT_DISABLE_TIMING))) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  CUresult result;
  Context* context = current_context(result);
  if (!context) return result;
  auto event = std::make_shared<Event>();
  event->context = context;
  event->flags = flags;
  if (interprocess && !make_shared_state(*event)) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = publish_event(lock, std::move(event));
  return CUDA_SUCCESS;
}

// [documented] Work that waits for it goes on waiting; nothing else of it is left.
static CUresult destroy_event(CUevent handle) {
  Locked lock = lock_driver();
  if (!driver().events.erase(handle)) return CUDA_ERROR_INVALID_HANDLE;
  --counters.live_events;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuEventDestroy(CUevent event) {
  SIMCUDA_CALL(kOrdinary);
  return destroy_event(event);
}

extern "C" CUresult cuEventDestroy_v2(CUevent event) {
  SIMCUDA_CALL(kOrdinary);
  return destroy_event(event);
}

static CUresult record_event(CUevent handle, CUstream stream_handle) {
  Locked lock = lock_driver();
  CUresult result;
  const StreamPointer stream = find_stream(lock, stream_handle, result);
  const auto event = find_event(lock, handle);
  if (!stream) return result;
  // [documented] Event and stream must be of one context.
  if (!event || event->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
  return record(lock, *event, stream);
}

extern "C" CUresult cuEventRecord(CUevent event, CUstream stream) {
  SIMCUDA_CALL(kOrdinary);
  return record_event(event, stream);
}
SIMCUDA_PER_THREAD_STREAM(cuEventRecord, _ptsz, (CUevent event, CUstream stream), (event, stream))

extern "C" CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  SIMCUDA_CALL(kOrdinary);
  if (flags & CU_EVENT_RECORD_EXTERNAL) return refuse("cuEventRecordWithFlags with CU_EVENT_RECORD_EXTERNAL");
  return record_event(event, stream);
}
SIMCUDA_PER_THREAD_STREAM(cuEventRecordWithFlags, _ptsz, (CUevent event, CUstream stream, unsigned flags),
                          (event, stream, flags))

extern "C" CUresult cuEventQuery(CUevent handle) {
  SIMCUDA_CALL(kUnsafe);
  Locked lock = lock_driver();
  const auto event = find_event(lock, handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult captured = check_not_captured(lock, *event)) return captured;
  if (event->context->sticky != CUDA_SUCCESS) return event->context->sticky;
  return current_point(*event).reached() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

extern "C" CUresult cuEventSynchronize(CUevent handle) {
  SIMCUDA_CALL(kUnsafe | kSynchronizes);
  Locked lock = lock_driver();
  const auto event = find_event(lock, handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult captured = check_not_captured(lock, *event)) return captured;
  const EventPoint point = current_point(*event);
  if (!point.reached()) {
    lock.unlock();
    point.wait();
    lock.lock();
  }
  trim_pools_after_wait(lock);
  return event->context->sticky;
}

// [documented] Both must have been recorded with timing (400), and be reached (600).
static CUresult elapsed(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  Locked lock = lock_driver();
  const auto start = find_event(lock, start_handle), end = find_event(lock, end_handle);
  if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& event : {start, end})
    if (!event || !event->recorded || event->capture_id || event->flags & CU_EVENT_DISABLE_TIMING)
      return CUDA_ERROR_INVALID_HANDLE;
  if (!start->point.reached() || !end->point.reached()) return CUDA_ERROR_NOT_READY;
  *milliseconds = static_cast<float>(*end->point.nanoseconds - *start->point.nanoseconds) * 1e-6F;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  SIMCUDA_CALL(kOrdinary);
  return elapsed(milliseconds, start, end);
}

extern "C" CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  SIMCUDA_CALL(kOrdinary);
  return elapsed(milliseconds, start, end);
}

extern "C" CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned flags) {
  SIMCUDA_CALL(kOrdinary);
  if (flags & CU_EVENT_WAIT_EXTERNAL) return refuse("cuStreamWaitEvent with CU_EVENT_WAIT_EXTERNAL");
  Locked lock = lock_driver();
  CUresult result;
  const StreamPointer stream = find_stream(lock, stream_handle, result);
  const auto event = find_event(lock, handle);
  if (!stream) return result;
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (event->capture_id || stream->capture) return wait_in_capture(lock, stream, *event);
  const EventPoint point = current_point(*event);
  if (point.reached()) return CUDA_SUCCESS;
  if (point.shared)
    queue_operation(
        lock, stream, [point] { point.wait(); }, {}, true);
  else
    queue_operation(
        lock, stream, [] {}, {point.marker}, true);
  return CUDA_SUCCESS;
}
SIMCUDA_PER_THREAD_STREAM(cuStreamWaitEvent, _ptsz, (CUstream stream, CUevent event, unsigned flags),
                          (stream, event, flags))
