// CUresult codes as answers of the library.
//
// Room: the C interface's side of CUDA: its tables of memory and queues, and the calls that are CUDA's by name.
// May include: pool/base, stats, backends/cuda, shim/include/cistern, shim/process, shim/library, shim/cuda,
//   shim/cuda/hooks.
#pragma once
#include "backends/cuda/api.hpp"
#include "shim/library/answers.hpp"

namespace cistern::cuda {

// No libcuda could be loaded: no driver has been asked.
constexpr CUresult kNoDriver = -1;

inline cistern_status status_of(CUresult answer) {
  if (answer == kSuccess) return CISTERN_OK;
  if (answer == kNoDriver) return CISTERN_NO_DRIVER;
  if (answer == kOutOfMemory) return library::refused(answer, CISTERN_NO_MEMORY);
  if (answer == kInvalidDevice) return library::refused(answer, CISTERN_INVALID);
  return library::refused(answer, answer == kNoDevice ? CISTERN_NO_DRIVER : CISTERN_DRIVER);
}

}  // namespace cistern::cuda
