// Finds the hook that takes the place of a function that the driver's cuGetProcAddress answered.
#pragma once
#include <cstdint>

#include "backends/cuda/api.hpp"

namespace cistern::cuda {

// After a real cuGetProcAddress answered `*function` for (name, version, flags): ours takes its place where a row of
// symbols/cuda.def stands for that very function. `again` asks the driver for another version.
void substitute(const char* name, void** function, int version, std::uint64_t flags,
                CUresult (*again)(const char*, void**, int, std::uint64_t));

struct LookUps {
  std::uint64_t answered, substituted;
};
LookUps look_ups();

}  // namespace cistern::cuda
