// What is asked of a stream or put on it: waiting, events, host functions, properties.
#include "per_stream.hpp"

using namespace simcuda_runtime;

extern "C" {

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return in_context([&] { return DRIVER_ON_STREAM(cuStreamSynchronize, 2000, 7000)(stream); });
}

// "Not ready" becomes the last error as any other failure does [measured: PyTorch clears it after each query].
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return in_context([&] { return DRIVER_ON_STREAM(cuStreamQuery, 2000, 7000)(stream); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return in_context([&] { return DRIVER_ON_STREAM(cuStreamWaitEvent, 3020, 7000)(stream, event, flags); });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return in_context([&] { return DRIVER_ON_STREAM(cuEventRecord, 2000, 7000)(event, stream); });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  return in_context([&] { return DRIVER_ON_STREAM(cuEventRecordWithFlags, 11010, 11010)(event, stream, flags); });
}

// The callbacks of both families differ only in the name of the error's type [documented].
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data, unsigned int flags) {
  return in_context([&] {
    return DRIVER_ON_STREAM(cuStreamAddCallback, 5000, 7000)(stream, reinterpret_cast<CUstreamCallback>(callback), data,
                                                             flags);
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return in_context([&] { return DRIVER_ON_STREAM(cuLaunchHostFunc, 10000, 10000)(stream, function, data); });
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return in_context([&] { return DRIVER_ON_STREAM(cuStreamGetPriority, 5050, 7000)(stream, priority); });
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int* flags) {
  return in_context([&] { return DRIVER_ON_STREAM(cuStreamGetFlags, 5050, 7000)(stream, flags); });
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  return in_context([&] { return DRIVER_ON_STREAM(cuStreamGetId, 12000, 12000)(stream, id); });
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return in_context([&] { return DRIVER_ON_STREAM(cuStreamGetDevice, 12080, 12080)(stream, device); });
}

// The attribute values of both families have the same layout [documented: they are named as twins].
cudaError_t cudaStreamGetAttribute(cudaStream_t stream, cudaStreamAttrID attribute, cudaStreamAttrValue* value) {
  static_assert(sizeof(cudaStreamAttrValue) == sizeof(CUstreamAttrValue));
  return in_context([&] {
    return DRIVER_ON_STREAM(cuStreamGetAttribute, 11000, 11000)(stream, static_cast<CUstreamAttrID>(attribute),
                                                                reinterpret_cast<CUstreamAttrValue*>(value));
  });
}

cudaError_t cudaStreamSetAttribute(cudaStream_t stream, cudaStreamAttrID attribute, const cudaStreamAttrValue* value) {
  return in_context([&] {
    return DRIVER_ON_STREAM(cuStreamSetAttribute, 11000, 11000)(stream, static_cast<CUstreamAttrID>(attribute),
                                                                reinterpret_cast<const CUstreamAttrValue*>(value));
  });
}

cudaError_t cudaStreamCopyAttributes(cudaStream_t to, cudaStream_t from) {
  return in_context([&] { return DRIVER_ON_STREAM(cuStreamCopyAttributes, 11000, 11000)(to, from); });
}

}  // extern "C"
