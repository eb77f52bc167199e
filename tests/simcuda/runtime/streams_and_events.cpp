// Making and destroying streams and events, and what needs no default stream. The rest: per_stream/streams.cpp.
#include "state.hpp"

using namespace simcuda_runtime;

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return in_context([&] { return DRIVER(cuStreamCreate, 2000)(stream, unsigned{CU_STREAM_DEFAULT}); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return in_context([&] { return DRIVER(cuStreamCreate, 2000)(stream, flags); });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  return in_context([&] { return DRIVER(cuStreamCreateWithPriority, 5050)(stream, flags, priority); });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return in_context([&] { return DRIVER(cuStreamDestroy, 4000)(stream); });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return in_context(
      [&] { return DRIVER(cuThreadExchangeStreamCaptureMode, 10010)(reinterpret_cast<CUstreamCaptureMode*>(mode)); });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return in_context([&] { return DRIVER(cuEventCreate, 2000)(event, unsigned{CU_EVENT_DEFAULT}); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return in_context([&] { return DRIVER(cuEventCreate, 2000)(event, flags); });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return in_context([&] { return DRIVER(cuEventDestroy, 4000)(event); });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return in_context([&] { return DRIVER(cuEventQuery, 2000)(event); });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return in_context([&] { return DRIVER(cuEventSynchronize, 2000)(event); });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return in_context([&] { return DRIVER(cuEventElapsedTime, 12080)(milliseconds, start, end); });
}

}  // extern "C"
