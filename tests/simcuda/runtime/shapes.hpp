// How rectangles and boxes become descriptors of the driver's.
#pragma once
#include <cuda.h>
#include <driver_types.h>

namespace simcuda_runtime {

// One end of a copy; offsets in bytes for linear memory.
struct End {
  cudaArray_const_t array = nullptr;
  const void* pointer = nullptr;
  size_t pitch = 0;
  size_t rows = 0;
  size_t x = 0, y = 0, z = 0;
};

inline bool kind_is_valid(cudaMemcpyKind kind) { return kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault; }

// Offsets and widths of the 2D functions are in bytes, on arrays too [documented].
CUDA_MEMCPY2D describe_plane(const End& to, const End& from, size_t width, size_t height, cudaMemcpyKind kind);

// Those of boxes are in elements of the array, where there is one [documented].
CUresult describe_box(const cudaMemcpy3DParms& box, CUDA_MEMCPY3D* shape);

}  // namespace simcuda_runtime
