// Launches and synchronisations: passed on. An error that breaks the context is noted.
#include "shim/cuda/hooks/hooks.hpp"
#include "shim/cuda/state.hpp"

namespace cistern::cuda {
namespace {

CUresult observe(CUresult answer) {
  if (is_sticky(answer)) [[unlikely]]
    return note(state(), answer);
  return answer;
}

}  // namespace

namespace hook {

#define CUDA_OBSERVE(base, version, stream, name, parameters, arguments) \
  CUresult name parameters { return observe(driver().name arguments); }
#include "shim/symbols/cuda.def"

}  // namespace hook
}  // namespace cistern::cuda
