// Modules, graphs, limits, events, address ranges: what takes device memory besides, and so fails while the pools keep
// it all. Passed on, with room made where it is missing.
#include "shim/cuda/hooks/hooks.hpp"
#include "shim/cuda/room.hpp"

namespace cistern::cuda {
namespace {

CUresult observe(CUresult answer) {
  if (is_sticky(answer)) [[unlikely]]
    return note(state(), answer);
  return answer;
}

// One row's outputs: pointers, and array(first, count) of several.
template <class Pass, class... Places>
CUresult allocate(Pass pass, Places&&... places) {
  return observe(with_room_again(pass, output(static_cast<Places&&>(places))...));
}

}  // namespace

namespace hook {

#define CUDA_ALLOCATE(base, version, stream, name, parameters, arguments, ...)           \
  CUresult name parameters {                                                             \
    return allocate([&] { return driver().name arguments; } __VA_OPT__(, ) __VA_ARGS__); \
  }
#include "shim/symbols/cuda.def"

}  // namespace hook
}  // namespace cistern::cuda
