// The table of CUDA's segments.
#pragma once
#include "shim/library/kind_memory.hpp"

namespace cistern::cuda {

extern const library::KindSegments segments;

}  // namespace cistern::cuda
