// The exported CUDA functions. They have no logic. A function of the driver calls its hook (cuda/hooks). A function of
// the runtime calls the runtime of the calling module (cuda/runtime.hpp), which calls the driver's functions in turn.
#include "shim/cuda/hooks/gathering.hpp"
#include "shim/cuda/hooks/hooks.hpp"
#include "shim/cuda/runtime.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/lookup.hpp"

using namespace cistern::cuda;

namespace {

// The memory that a call of the runtime made, by its first argument; null for calls that make none.
const void* memory_of(void** pointer) { return *pointer; }
const void* memory_of(cudaPitchedPtr* pitched) { return pitched->pointer; }
const void* memory_of(cudaArray_t* array) { return *array; }
const void* memory_of(cudaMipmappedArray_t* array) { return *array; }
const void* memory_of(const void*) { return nullptr; }

template <class First, class... Rest>
const void* memory_left(First first, Rest...) {
  return memory_of(first);
}

}  // namespace

// Without a driver in the process there is nothing to forward to. A program can only come here through a weak reference
// that our export has satisfied.
#define CUDA_DRIVER(action, base, version, stream, name, parameters, arguments)         \
  extern "C" [[gnu::visibility("default")]] CUresult name parameters {                  \
    if (!driver().name) [[unlikely]]                                                    \
      return kNoDevice;                                                                 \
    if (const Route to = route(); to != Route::hook) [[unlikely]]                       \
      return to == Route::driver ? driver().name arguments : gathering::name arguments; \
    return hook::name arguments;                                                        \
  }
#define CUDA_RUNTIME(action, name, parameters, arguments)                                                              \
  extern "C" [[gnu::visibility("default")]] cudaError_t name parameters {                                              \
    auto real =                                                                                                        \
        reinterpret_cast<cudaError_t(*) parameters>(runtime_function(RuntimeCall::name, __builtin_return_address(0))); \
    if (!real) [[unlikely]]                                                                                            \
      return kInsufficientDriver;                                                                                      \
    if (cistern::switched_off()) [[unlikely]]                                                                          \
      return real arguments;                                                                                           \
    Observing observing(#name);                                                                                        \
    const cudaError_t answer = real arguments;                                                                         \
    return answer == kSuccess ? observing.made(answer, memory_left arguments) : answer;                                \
  }
#include "shim/symbols/cuda.def"

// The result of dlclose does not depend on the calling module, as that of dlopen does: an ordinary call forwards it.
extern "C" [[gnu::visibility("default")]] int dlclose(void* handle) {
  using Dlclose = int (*)(void*);
  static constinit std::atomic<Dlclose> known{nullptr};
  Dlclose real = known.load(std::memory_order_relaxed);
  if (!real) known.store(real = reinterpret_cast<Dlclose>(cistern::next_symbol("dlclose")), std::memory_order_relaxed);
  library_unloads();
  const int answer = real(handle);
  library_unloaded();
  return answer;
}
