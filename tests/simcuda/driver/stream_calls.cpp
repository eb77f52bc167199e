// cuStream*: create, destroy, synchronise, query and properties.
#include <algorithm>

#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/capture.hpp"
#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/memory.hpp"
#include "tests/simcuda/driver/settings.hpp"
#include "tests/simcuda/driver/stream.hpp"

using namespace simcuda;

namespace {

CUresult create(CUstream* handle, unsigned flags, int priority) {
  if (!handle || flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  CUresult result;
  Context* context = current_context(result);
  if (!context) return result;
  *handle = create_stream(lock, *context, flags, priority);
  return CUDA_SUCCESS;
}

// [documented] It returns at once; what is queued still runs.
CUresult destroy(CUstream handle) {
  Locked lock = lock_driver();
  const auto found = driver().streams.find(handle);
  if (found == driver().streams.end()) return error_of_unknown_stream(lock, handle);
  const StreamPointer stream = found->second;
  if (stream->capture) abandon_capture(lock, *stream);
  driver().streams.erase(found);
  driver().destroyed_streams.insert(handle);
  stream->context->created.erase(stream);
  retire_stream(lock, stream);
  --counters.live_streams;
  return CUDA_SUCCESS;
}

// [documented] A stream that is being captured cannot be waited for or queried; its capture is invalidated. Nor can the
// legacy stream while a blocking stream is being captured.
CUresult check_not_capturing(Locked& lock, const StreamPointer& stream) {
  if (!any_capture()) return CUDA_SUCCESS;
  if (stream->kind == StreamKind::kLegacy && invalidate_blocking_captures(lock, *stream->context))
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (!stream->capture) return CUDA_SUCCESS;
  invalidate(lock, *stream->capture);
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

// Does something with the stream, or answers why there is none.
template <typename Use>
CUresult with_stream(CUstream handle, Use use) {
  Locked lock = lock_driver();
  CUresult result;
  const StreamPointer stream = find_stream(lock, handle, result);
  return stream ? use(lock, stream) : result;
}

}  // namespace

extern "C" CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  SIMCUDA_CALL(kOrdinary);
  return create(stream, flags, 0);
}

extern "C" CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  SIMCUDA_CALL(kOrdinary);
  return create(stream, flags, priority);
}

extern "C" CUresult cuStreamDestroy(CUstream stream) {
  SIMCUDA_CALL(kOrdinary);
  return destroy(stream);
}

extern "C" CUresult cuStreamDestroy_v2(CUstream stream) {
  SIMCUDA_CALL(kOrdinary);
  return destroy(stream);
}

extern "C" CUresult cuStreamSynchronize(CUstream handle) {
  SIMCUDA_CALL(kUnsafe | kSynchronizes);
  return with_stream(handle, [](Locked& lock, const StreamPointer& stream) -> CUresult {
    if (const CUresult capturing = check_not_capturing(lock, stream)) return capturing;
    wait_for(lock, unfinished_before(lock, *stream));
    trim_pools_after_wait(lock);
    return stream->context->sticky;
  });
}
SIMCUDA_PER_THREAD_STREAM(cuStreamSynchronize, _ptsz, (CUstream stream), (stream))

extern "C" CUresult cuStreamQuery(CUstream handle) {
  SIMCUDA_CALL(kUnsafe);
  return with_stream(handle, [](Locked& lock, const StreamPointer& stream) -> CUresult {
    if (const CUresult capturing = check_not_capturing(lock, stream)) return capturing;
    if (stream->context->sticky != CUDA_SUCCESS) return stream->context->sticky;
    return unfinished_before(lock, *stream).empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}
SIMCUDA_PER_THREAD_STREAM(cuStreamQuery, _ptsz, (CUstream stream), (stream))

extern "C" CUresult cuStreamGetFlags(CUstream handle, unsigned* flags) {
  SIMCUDA_CALL(kOrdinary);
  return with_stream(handle, [&](Locked&, const StreamPointer& stream) {
    *flags = stream->flags;
    return CUDA_SUCCESS;
  });
}
SIMCUDA_PER_THREAD_STREAM(cuStreamGetFlags, _ptsz, (CUstream stream, unsigned* flags), (stream, flags))

extern "C" CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  SIMCUDA_CALL(kOrdinary);
  return with_stream(handle, [&](Locked&, const StreamPointer& stream) {
    *priority = stream->priority;
    return CUDA_SUCCESS;
  });
}
SIMCUDA_PER_THREAD_STREAM(cuStreamGetPriority, _ptsz, (CUstream stream, int* priority), (stream, priority))

extern "C" CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  SIMCUDA_CALL(kOrdinary);
  return with_stream(handle, [&](Locked&, const StreamPointer& stream) {
    *id = stream->id;
    return CUDA_SUCCESS;
  });
}
SIMCUDA_PER_THREAD_STREAM(cuStreamGetId, _ptsz, (CUstream stream, unsigned long long* id), (stream, id))

extern "C" CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  SIMCUDA_CALL(kOrdinary);
  return with_stream(handle, [&](Locked&, const StreamPointer& stream) {
    *context = stream->context->handle();
    return CUDA_SUCCESS;
  });
}
SIMCUDA_PER_THREAD_STREAM(cuStreamGetCtx, _ptsz, (CUstream stream, CUcontext* context), (stream, context))

#if CUDA_VERSION >= 12080
extern "C" CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) {
  SIMCUDA_CALL(kOrdinary);
  return with_stream(handle, [&](Locked&, const StreamPointer& stream) {
    *device = stream->context->device->ordinal;
    return CUDA_SUCCESS;
  });
}
SIMCUDA_PER_THREAD_STREAM(cuStreamGetDevice, _ptsz, (CUstream stream, CUdevice* device), (stream, device))
#endif

// [documented] Which streams may use managed memory: nothing to do where all memory is the host's.
extern "C" CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr, size_t, unsigned) {
  SIMCUDA_CALL(kOrdinary);
  return with_stream(handle, [](Locked&, const StreamPointer&) { return CUDA_SUCCESS; });
}
SIMCUDA_PER_THREAD_STREAM(cuStreamAttachMemAsync, _ptsz,
                          (CUstream stream, CUdeviceptr address, size_t bytes, unsigned flags),
                          (stream, address, bytes, flags))
