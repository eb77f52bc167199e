// The hooks where copies may be held back (gather.hpp): each sends what is held, and then calls the hook of the same
// name in namespace `hook`. Whether a process has these or those is decided at its first call, so that the others cost
// nothing more.
#pragma once
#include <atomic>

#include "backends/cuda/api.hpp"

namespace cistern::cuda {

// Where exported functions and those that a look-up answers lead.
enum class Route : int { undecided = -1, hook, driver, gathering };
Route decide_route();
inline Route route() {
  static constinit std::atomic<Route> decided{Route::undecided};
  Route known = decided.load(std::memory_order_relaxed);
  if (known < Route::hook) [[unlikely]]
    decided.store(known = decide_route(), std::memory_order_relaxed);
  return known;
}

namespace gathering {

#define CUDA_DRIVER(action, base, version, stream, name, parameters, arguments) CUresult name parameters;
#include "shim/symbols/cuda.def"

}  // namespace gathering
}  // namespace cistern::cuda
