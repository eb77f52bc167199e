// The common part of all hooks of calls that make memory which is not pooled.
#pragma once
#include "shim/cuda/passed_with_room.hpp"

namespace cistern::cuda {

struct MadeBy {
  Family family;
  const char* object;
  const char* api;
  int device = -1;  // where the memory lies; -1: on the device of the current context
};

// Accounts what a call gave, or that it failed.
CUresult born(CUresult answer, const MadeBy& by, const void* handle, std::uint64_t bytes);

}  // namespace cistern::cuda
