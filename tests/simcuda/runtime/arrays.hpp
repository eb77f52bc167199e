// What copies must know of arrays: the runtime's handle is the driver's, and offsets of elements become bytes.
#pragma once
#include <cuda.h>
#include <driver_types.h>

namespace simcuda_runtime {

inline CUarray driver_array(cudaArray_const_t array) {
  return reinterpret_cast<CUarray>(const_cast<cudaArray*>(array));
}

CUresult element_bytes(CUarray array, size_t* bytes);

}  // namespace simcuda_runtime
