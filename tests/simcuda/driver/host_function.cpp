// Host functions and callbacks in streams.
#include "tests/simcuda/driver/host_function.hpp"
#include "tests/simcuda/driver/call.hpp"
#include "tests/simcuda/driver/context.hpp"
#include "tests/simcuda/driver/thread_state.hpp"

namespace simcuda {

Task host_task(CUhostFn function, void* argument) {
  const auto run = [function, argument] {
    this_thread().in_host_function = true;
    function(argument);
    this_thread().in_host_function = false;
  };
  return {CU_GRAPH_NODE_TYPE_HOST, run,
          std::make_shared<CUDA_HOST_NODE_PARAMS>(CUDA_HOST_NODE_PARAMS{function, argument})};
}

namespace {

CUresult launch(CUstream stream_handle, CUhostFn function, void* argument) {
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  CUresult result;
  const StreamPointer stream = find_stream(lock, stream_handle, result);
  return stream ? enqueue(lock, stream, host_task(function, argument)) : result;
}

}  // namespace
}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuLaunchHostFunc(CUstream stream_handle, CUhostFn function, void* argument) {
  SIMCUDA_CALL(kOrdinary);
  return launch(stream_handle, function, argument);
}
SIMCUDA_PER_THREAD_STREAM(cuLaunchHostFunc, _ptsz, (CUstream stream, CUhostFn function, void* argument),
                          (stream, function, argument))

// Of a later toolkit than the headers. [assumed] Its mode changes nothing here.
extern "C" CUresult cuLaunchHostFunc_v2(CUstream stream_handle, CUhostFn function, void* argument, unsigned) {
  SIMCUDA_CALL(kOrdinary);
  return launch(stream_handle, function, argument);
}
SIMCUDA_PER_THREAD_STREAM(cuLaunchHostFunc_v2, _ptsz,
                          (CUstream stream, CUhostFn function, void* argument, unsigned mode),
                          (stream, function, argument, mode))

// [documented] A callback gets the stream's state and is called after an error too; it cannot be captured.
extern "C" CUresult cuStreamAddCallback(CUstream stream_handle, CUstreamCallback callback, void* argument,
                                        unsigned flags) {
  SIMCUDA_CALL(kOrdinary);
  if (!callback || flags) return CUDA_ERROR_INVALID_VALUE;
  Locked lock = lock_driver();
  CUresult result;
  const StreamPointer stream = find_stream(lock, stream_handle, result);
  if (!stream) return result;
  if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  Context* context = stream->context;
  const auto run = [=] {
    this_thread().in_host_function = true;
    callback(stream_handle, context->sticky, argument);
    this_thread().in_host_function = false;
  };
  queue_operation(lock, stream, run, {}, true);
  return CUDA_SUCCESS;
}
SIMCUDA_PER_THREAD_STREAM(cuStreamAddCallback, _ptsz,
                          (CUstream stream, CUstreamCallback callback, void* argument, unsigned flags),
                          (stream, callback, argument, flags))
