// CUDA arrays: opaque to the program, here rows without gaps in device memory.
#pragma once
#include "tests/simcuda/driver/driver.hpp"

namespace simcuda {

struct Array {
  Context* context = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  uintptr_t address = 0;
  size_t bytes = 0;
  size_t row_bytes = 0;  // width in bytes
  size_t rows = 0;       // of one slice
};

Array* find_array(Locked&, CUarray handle);
void drop_arrays_of(Locked& lock, Context& context);

}  // namespace simcuda
