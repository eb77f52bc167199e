// Copies between devices. They have no per-thread twins [measured: NVIDIA's runtime exports none].
#include "state.hpp"

using namespace simcuda_runtime;

namespace {

struct Ends {
  CUcontext to;
  CUcontext from;
};

cudaError_t contexts_of(int to_device, int from_device, Ends* ends) {
  if (cudaError_t error = primary_context(to_device, &ends->to)) return error;
  return primary_context(from_device, &ends->from);
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device, size_t bytes) {
  return in_context([&]() -> cudaError_t {
    Ends ends{};
    if (cudaError_t error = contexts_of(to_device, from_device, &ends)) return error;
    return to_runtime(DRIVER(cuMemcpyPeer, 4000)(address_of(to), ends.to, address_of(from), ends.from, bytes));
  });
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                                cudaStream_t stream) {
  return in_context([&]() -> cudaError_t {
    Ends ends{};
    if (cudaError_t error = contexts_of(to_device, from_device, &ends)) return error;
    return to_runtime(
        DRIVER(cuMemcpyPeerAsync, 4000)(address_of(to), ends.to, address_of(from), ends.from, bytes, stream));
  });
}

}  // extern "C"
