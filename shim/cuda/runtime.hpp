// The exported cuda* observers. They name the call that a program made, and count allocations that the driver hooks did
// not see. They forward to the runtime that the calling module is linked with, since several runtimes may live in one
// process.
#pragma once
#include "shim/cuda/state.hpp"

namespace cistern::cuda {

enum class RuntimeCall : int {
#define CUDA_RUNTIME(action, name, parameters, arguments) name,
#include "shim/symbols/cuda.def"
  count
};

// The function of the calling module's runtime; null: there is none. Once a runtime is known, the dynamic linker's lock
// is not taken: a thread that holds it, in a plugin's constructor, may wait for the one that calls this.
void* runtime_function(RuntimeCall call, const void* caller);

// A runtime becomes known when it looks the driver up for itself, or else at the first call through our exports.
void runtime_looks_up(const void* caller);

// In a thread without a context, for the shared runtime that is loaded: does what its next call would do, which is to
// make the context of the thread's device current (cudaSetDevice since CUDA 12). Returns that device, or 0 if no such
// runtime is there.
int enter_runtime();

// Around every dlclose of the program's.
void library_unloads();
void library_unloaded();

constexpr cudaError_t kInsufficientDriver = 35;

// Around one forwarded call.
class Observing {
 public:
  explicit Observing(const char* api) : mine_{api, false}, before_(observed) {
    if (!before_) observed = &mine_;
  }
  ~Observing() {
    if (!before_) observed = nullptr;
  }
  Observing(const Observing&) = delete;
  Observing& operator=(const Observing&) = delete;

  // After each call: one that succeeded counts as escaped if it made memory and no driver hook saw it.
  cudaError_t made(cudaError_t answer, const void* memory);

 private:
  Observed mine_;
  Observed* before_;
};

}  // namespace cistern::cuda
