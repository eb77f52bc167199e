// Copies of rows and slices, as streams and graph nodes need them.
#pragma once
#include "tests/simcuda/driver/copy.hpp"

namespace simcuda {

// What a CUDA_MEMCPY3D means. Otherwise the error that it is.
CUresult resolve(Locked&, const CUDA_MEMCPY3D& description, ShapedCopy& answer);

}  // namespace simcuda
