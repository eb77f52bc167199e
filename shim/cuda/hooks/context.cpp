// Contexts, streams and captures: what memory lives and dies with, and when work has ended.
#include <optional>

#include "shim/cuda/hooks/hooks.hpp"
#include "shim/cuda/hooks/stream_order.hpp"
#include "shim/cuda/passed_with_room.hpp"

namespace cistern::cuda {
namespace {

CUresult created(CUresult answer, CUcontext* context, CUdevice device) {
  if (answer == kSuccess && context) state().contexts.make_known(*context, device, true);
  return answer;
}

template <class Pass>
CUresult destroy(CUcontext handle, Pass pass) {
  CudaState& s = state();
  ContextEnd end(s, s.contexts.known(handle));
  const CUresult answer = note(s, pass());
  answer == kSuccess ? end.gone() : end.stays();
  return answer;
}

// The primary context of the device: the one that a call has retained. If none was seen, a context that no call made.
Context* primary_context(CudaState& s, CUdevice device) {
  const Device* const of = s.contexts.device(device);
  Context* primary = of ? of->primary.load() : nullptr;
  if (primary && primary->alive.load()) return primary;
  primary = nullptr;
  s.contexts.for_each([&](Context& context) {
    if (context.device->ordinal == device && !context.made_by_program.load()) primary = &context;
  });
  return primary;
}

bool still_active(CUdevice device) {
  unsigned flags = 0;
  int active = 0;
  if (in_host_function) return true;
  return driver().cuDevicePrimaryCtxGetState(device, &flags, &active) == kSuccess && active;
}

// While another call retains it, it cannot end, and nothing need wait for its threads. References that were not seen
// only keep it longer; if others gave back what was seen, its end is seen afterwards.
template <class Pass>
CUresult release_primary(CUdevice device, Pass pass) {
  CudaState& s = state();
  Context* const primary = primary_context(s, device);
  const bool is_held = primary && primary->device->primary_references.fetch_sub(1) > 1;
  std::optional<ContextEnd> end;
  if (!is_held) end.emplace(s, primary);
  const CUresult answer = note(s, pass());
  if (answer != kSuccess && primary) primary->device->primary_references.fetch_add(1);
  if (answer == kSuccess && !still_active(device)) {
    if (primary) primary->device->primary_references.store(0);
    if (!end) end.emplace(s, primary);
    end->gone();
  } else if (end) {
    end->stays();
  }
  return answer;
}

// Where it is not known yet: a green context retains it, so that the call makes none.
Context* primary_context_of_green(CudaState& s, CUdevice device) {
  if (Context* const primary = primary_context(s, device)) return primary;
  CUcontext handle = nullptr;
  if (driver().cuDevicePrimaryCtxRetain(&handle, device) != kSuccess) return nullptr;
  driver().cuDevicePrimaryCtxRelease_v2(device);
  return s.contexts.make_known(handle, device, false);
}

// The handle of a green context stands for a part of the primary context, whose memory and objects stay [CUDA 13.5,
// cuda.h: cuCtxFromGreenCtx, cuGreenCtxDestroy]. A reference to the primary context goes.
CUresult destroy_green(CUgreenCtx green) {
  CudaState& s = state();
  GreenRecord record;
  const bool known = s.objects.green_contexts().take(green, record);
  Context* const part = s.contexts.known(record.context);
  Context* const primary = part ? primary_context_of_green(s, record.device) : primary_context(s, record.device);
  const bool is_held = !known || !primary || primary->device->primary_references.load() > 0;
  ContextEnd end(s, part);
  std::optional<ContextEnd> end_of_primary;
  if (!is_held) end_of_primary.emplace(s, primary);
  const CUresult answer = note(s, driver().cuGreenCtxDestroy(green));
  if (answer != kSuccess) {
    if (known) s.objects.green_contexts().put(green, record);
    end.stays();
    if (end_of_primary) end_of_primary->stays();
    return answer;
  }
  const bool stays = is_held || still_active(record.device);
  if (stays && primary)
    end.gone_into(*primary);
  else
    end.gone();
  if (end_of_primary) stays ? end_of_primary->stays() : end_of_primary->gone();
  return answer;
}

// Whether the context, which was current, is not destroyed.
bool is_still_current(CUcontext handle) {
  CUcontext current = nullptr;
  CUdevice device = 0;
  return driver().cuCtxGetCurrent(&current) == kSuccess && current == handle &&
         driver().cuCtxGetDevice(&device) == kSuccess;
}

template <class Pass>
CUresult reset_primary(CUdevice device, Pass pass) {
  CudaState& s = state();
  ContextEnd end(s, primary_context(s, device));
  const CUresult answer = pass();
  answer == kSuccess ? end.gone() : end.stays();
  return answer;
}

template <class Pass>
CUresult stream_created(const char* name, Pass pass, CUstream* stream, unsigned flags) {
  const CUresult answer = with_room_restoring(pass, output(stream));
  CudaState& s = state();
  if (answer != kSuccess) return note(s, answer);
  if (Context* context = s.contexts.current()) {
    context->clock.stream_created(*stream, flags & kStreamNonBlocking);
    s.objects.stream_made(*stream, context, (flags & kStreamNonBlocking) != 0);
  }
  note_object(s, ObjectType::stream, *stream, name);
  return answer;
}

template <class Pass>
CUresult destroy_stream(CUstream stream, Pass pass) {
  CudaState& s = state();
  StreamRecord record;
  const bool known = s.objects.take_stream(stream, record);
  const bool there = known && record.context->alive.load();
  if (there) record.context->clock.stream_ends(record.context->handle(), stream, record.context->device->calls);
  const CUresult answer = end_object(stream, pass);
  if (answer == kSuccess) {
    if (there) end_stream_order(s, *record.context, record.number);
    return s.captures.stream_gone(stream), answer;
  }
  if (there) {
    record.context->clock.stream_created(stream, record.non_blocking);
    s.objects.put_stream_back(stream, record);
  }
  return answer;
}

// Counted before it begins, so that no call of our own comes in between.
template <class Pass>
CUresult begin_capture(CUstream stream, bool per_thread, int mode, Pass pass) {
  CudaState& s = state();
  s.pools.settle();
  Context* context = s.contexts.current();
  s.captures.begun(stream, per_thread, mode, context ? context->handle() : nullptr);
  const CUresult answer = note(s, pass());
  if (answer != kSuccess) s.captures.ended(stream, per_thread);
  return answer;
}

// `graph`: where the program gets what was captured; null: it does not.
template <class Pass>
CUresult end_capture(CUstream stream, bool per_thread, CUgraph* graph, Pass pass) {
  CudaState& s = state();
  const CUresult answer = note(s, pass());
  int status = kCaptureStatusNone;
  if (answer != kSuccess && answer != kStreamCaptureInvalidated && !in_host_function)
    driver().cuStreamIsCapturing(!stream && per_thread ? per_thread_stream() : stream, &status);
  if (status != kCaptureStatusNone) return answer;
  if (answer == kSuccess && graph) s.graph_memory.captured(*graph);
  s.captures.ended(stream, per_thread);
  s.graph_memory.forget_captured_in_vain(s);
  s.pools.keep_limits_missed();
  return answer;
}

template <class Pass>
CUresult synchronise(CudaState& s, Context* context, Pass pass) {
  Transfers::waits(nullptr);
  const std::uint64_t number = context ? context->clock.last() : 0;
  const CUresult answer = note(s, pass());
  if (answer == kSuccess && context) {
    context->clock.synchronised(number);
    s.pools.keep_limits_missed();
  }
  return answer;
}

void trim_before_checkpoint() {
  if (CudaState* s = state_if_used()) trim_all(*s);
}

}  // namespace

namespace hook {

CUresult cuCtxCreate(CUcontext* context, unsigned flags, CUdevice device) {
  return created(with_room_restoring([&] { return driver().cuCtxCreate(context, flags, device); }, output(context)),
                 context, device);
}
CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
  return created(with_room_restoring([&] { return driver().cuCtxCreate_v2(context, flags, device); }, output(context)),
                 context, device);
}
CUresult cuCtxCreate_v3(CUcontext* context, void* affinity, int count, unsigned flags, CUdevice device) {
  return created(with_room_restoring([&] { return driver().cuCtxCreate_v3(context, affinity, count, flags, device); },
                                     output(context)),
                 context, device);
}
CUresult cuCtxCreate_v4(CUcontext* context, void* parameters, unsigned flags, CUdevice device) {
  return created(
      with_room_restoring([&] { return driver().cuCtxCreate_v4(context, parameters, flags, device); }, output(context)),
      context, device);
}
CUresult cuCtxDestroy(CUcontext context) {
  return destroy(context, [&] { return driver().cuCtxDestroy(context); });
}
CUresult cuCtxDestroy_v2(CUcontext context) {
  return destroy(context, [&] { return driver().cuCtxDestroy_v2(context); });
}
CUresult cuCtxDetach(CUcontext context) {
  CudaState& s = state();
  ContextEnd end(s, s.contexts.known(context));
  const CUresult answer = note(s, driver().cuCtxDetach(context));
  answer == kSuccess && !is_still_current(context) ? end.gone() : end.stays();  // others may have attached it
  return answer;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  const CUresult answer =
      with_room_restoring([&] { return driver().cuDevicePrimaryCtxRetain(context, device); }, output(context));
  if (answer != kSuccess || !context) return answer;
  if (Context* const primary = state().contexts.make_known(*context, device, false)) {
    primary->device->primary.store(primary);
    primary->device->primary_references.fetch_add(1);
  }
  return answer;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return release_primary(device, [&] { return driver().cuDevicePrimaryCtxRelease(device); });
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return release_primary(device, [&] { return driver().cuDevicePrimaryCtxRelease_v2(device); });
}
CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  return reset_primary(device, [&] { return driver().cuDevicePrimaryCtxReset(device); });
}
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return reset_primary(device, [&] { return driver().cuDevicePrimaryCtxReset_v2(device); });
}

CUresult cuGreenCtxCreate(CUgreenCtx* context, CUdevResourceDesc description, CUdevice device, unsigned flags) {
  const CUresult answer = with_room_restoring(
      [&] { return driver().cuGreenCtxCreate(context, description, device, flags); }, output(context));
  if (answer == kSuccess && context) state().objects.green_contexts().put(*context, {device, nullptr});
  return answer;
}
CUresult cuGreenCtxDestroy(CUgreenCtx context) { return destroy_green(context); }
CUresult cuCtxFromGreenCtx(CUcontext* context, CUgreenCtx green) {
  const CUresult answer = driver().cuCtxFromGreenCtx(context, green);
  if (answer != kSuccess || !context) return answer;
  CudaState& s = state();
  CUdevice device = -1;
  s.objects.green_contexts().with(green, [&](GreenRecord* record) {
    if (record) record->context = *context, device = record->device;
  });
  // Its memory may outlive it, which that of a range does not.
  if (Context* const made = s.contexts.make_known(*context, device, true)) made->has_no_range.store(true);
  return answer;
}
CUresult cuGreenCtxStreamCreate(CUstream* stream, CUgreenCtx context, unsigned flags, int priority) {
  return stream_created(
      "cuGreenCtxStreamCreate", [&] { return driver().cuGreenCtxStreamCreate(stream, context, flags, priority); },
      stream, flags);
}

CUresult cuCheckpointProcessLock(int process, void* arguments) {
  trim_before_checkpoint();
  return driver().cuCheckpointProcessLock(process, arguments);
}
CUresult cuCheckpointProcessCheckpoint(int process, void* arguments) {
  return driver().cuCheckpointProcessCheckpoint(process, arguments);
}
CUresult cuCheckpointProcessRestore(int process, void* arguments) {
  return driver().cuCheckpointProcessRestore(process, arguments);
}
CUresult cuCheckpointProcessUnlock(int process, void* arguments) {
  return driver().cuCheckpointProcessUnlock(process, arguments);
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  const CUresult answer = driver().cuCtxEnablePeerAccess(peer, flags);
  if (answer == kSuccess) state().contexts.note_peer_access();
  return answer;
}

CUresult cuCtxSynchronize() {
  CudaState& s = state();
  return synchronise(s, s.contexts.current(),
                     [&] { return counted_wait(s, "cuCtxSynchronize", [] { return driver().cuCtxSynchronize(); }); });
}
CUresult cuCtxSynchronize_v2(CUcontext context) {
  CudaState& s = state();
  Context* known = context ? s.contexts.known(context) : s.contexts.current();
  return synchronise(s, known, [&] {
    return counted_wait(s, "cuCtxSynchronize_v2", [&] { return driver().cuCtxSynchronize_v2(context); });
  });
}

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return stream_created(
      "cuStreamCreate", [&] { return driver().cuStreamCreate(stream, flags); }, stream, flags);
}
CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return stream_created(
      "cuStreamCreateWithPriority", [&] { return driver().cuStreamCreateWithPriority(stream, flags, priority); },
      stream, flags);
}
CUresult cuStreamDestroy(CUstream stream) {
  return destroy_stream(stream, [&] { return driver().cuStreamDestroy(stream); });
}
CUresult cuStreamDestroy_v2(CUstream stream) {
  return destroy_stream(stream, [&] { return driver().cuStreamDestroy_v2(stream); });
}

#define CAPTURE_HOOKS(suffix, per_thread)                                                                              \
  CUresult cuStreamBeginCapture##suffix(CUstream stream) {                                                             \
    return begin_capture(stream, per_thread, kCaptureModeGlobal,                                                       \
                         [&] { return driver().cuStreamBeginCapture##suffix(stream); });                               \
  }                                                                                                                    \
  CUresult cuStreamBeginCapture_v2##suffix(CUstream stream, int mode) {                                                \
    return begin_capture(stream, per_thread, mode,                                                                     \
                         [&] { return driver().cuStreamBeginCapture_v2##suffix(stream, mode); });                      \
  }                                                                                                                    \
  CUresult cuStreamBeginCaptureToGraph##suffix(CUstream stream, CUgraph graph, const CUgraphNode* dependencies,        \
                                               const void* edges, size_t count, int mode) {                            \
    return begin_capture(stream, per_thread, mode, [&] {                                                               \
      return driver().cuStreamBeginCaptureToGraph##suffix(stream, graph, dependencies, edges, count, mode);            \
    });                                                                                                                \
  }                                                                                                                    \
  CUresult cuStreamBeginRecaptureToGraph##suffix(CUstream stream, int mode, CUgraph graph, void* callback,             \
                                                 void* user_data) {                                                    \
    return begin_capture(stream, per_thread, mode, [&] {                                                               \
      return driver().cuStreamBeginRecaptureToGraph##suffix(stream, mode, graph, callback, user_data);                 \
    });                                                                                                                \
  }                                                                                                                    \
  CUresult cuStreamBeginCaptureToCig##suffix(CUstream stream, void* parameters) {                                      \
    return begin_capture(stream, per_thread, kCaptureModeGlobal,                                                       \
                         [&] { return driver().cuStreamBeginCaptureToCig##suffix(stream, parameters); });              \
  }                                                                                                                    \
  CUresult cuStreamEndCaptureToCig##suffix(CUstream stream) {                                                          \
    return end_capture(stream, per_thread, nullptr, [&] { return driver().cuStreamEndCaptureToCig##suffix(stream); }); \
  }                                                                                                                    \
  CUresult cuStreamEndCapture##suffix(CUstream stream, CUgraph* graph) {                                               \
    return end_capture(stream, per_thread, graph, [&] { return driver().cuStreamEndCapture##suffix(stream, graph); }); \
  }
CAPTURE_HOOKS(, false)
CAPTURE_HOOKS(_ptsz, true)
#undef CAPTURE_HOOKS

CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
  const int wanted = mode ? *mode : 0;
  const CUresult answer = driver().cuThreadExchangeStreamCaptureMode(mode);
  if (answer == kSuccess) Captures::mode_exchanged(wanted);
  return answer;
}

}  // namespace hook
}  // namespace cistern::cuda
