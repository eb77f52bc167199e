// Launches, memsets, prefetches, advice and synchronisations: passed on; work not between the pieces of a copy. A
// memset, prefetch or advice that names a block which the program has freed is refused (kept.hpp). An error that breaks
// the context is noted.
#include "shim/cuda/hooks/hooks.hpp"
#include "shim/cuda/hooks/kept.hpp"
#include "shim/cuda/stream_turn.hpp"

namespace cistern::cuda {
namespace {

CUresult observe(CUresult answer) {
  if (is_sticky(answer)) [[unlikely]]
    return note(state(), answer);
  return answer;
}

CUstream stream_in(const void* configuration) {
  return configuration ? static_cast<const CUlaunchConfig*>(configuration)->stream : nullptr;
}

}  // namespace

namespace hook {

#define CUDA_OBSERVE(base, version, stream, name, parameters, arguments) \
  CUresult name parameters { return observe(driver().name arguments); }
#define CUDA_WAIT(base, version, stream, name, parameters, arguments, for_what)            \
  CUresult name parameters {                                                               \
    Transfers::waits(for_what);                                                            \
    return observe(counted_wait(state(), #name, [&] { return driver().name arguments; })); \
  }
#define CUDA_ENQUEUE(base, version, stream, name, parameters, arguments, on) \
  CUresult name parameters {                                                 \
    const StreamTurn turn(state(), on, Zero::stream);                        \
    Transfers::last_was_no_copy();                                           \
    return observe(driver().name arguments);                                 \
  }
#define CUDA_USE(base, version, stream, name, parameters, arguments, on, ...) \
  CUresult name parameters {                                                  \
    InUse in_use;                                                             \
    if (refuses(state(), in_use, #name, __VA_ARGS__)) [[unlikely]]            \
      return kInvalidValue;                                                   \
    const StreamTurn turn(state(), on, Zero::stream);                         \
    Transfers::last_was_no_copy();                                            \
    return observe(driver().name arguments);                                  \
  }
#define CUDA_MARK(base, version, stream, name, parameters, arguments, mark, on) \
  CUresult name parameters {                                                    \
    const StreamTurn turn(state(), on, Zero::stream);                           \
    Transfers::marks(mark, stream_key(on, Zero::stream));                       \
    return observe(driver().name arguments);                                    \
  }
#include "shim/symbols/cuda.def"

CUresult cuMemAdvise(CUdeviceptr pointer, size_t bytes, int advice, CUdevice device) {
  InUse in_use;
  if (refuses(state(), in_use, "cuMemAdvise", pointer, bytes)) return kInvalidValue;
  return observe(driver().cuMemAdvise(pointer, bytes, advice, device));
}
CUresult cuMemAdvise_v2(CUdeviceptr pointer, size_t bytes, int advice, CUmemLocation location) {
  InUse in_use;
  if (refuses(state(), in_use, "cuMemAdvise_v2", pointer, bytes)) return kInvalidValue;
  return observe(driver().cuMemAdvise_v2(pointer, bytes, advice, location));
}

}  // namespace hook
}  // namespace cistern::cuda
