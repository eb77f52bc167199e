// The virtual memory that a command touches. It is noted when the command is made: from the ranges of copies and
// memsets, and from the arguments of kernels. Other memory is not noted.
#pragma once
#include <vector>

#include "tests/simcuda/driver/driver.hpp"

namespace simcuda {

struct Touched {
  static constexpr int kDeviceOfCommand = -1;

  uintptr_t begin;
  size_t bytes;
  bool writes = false;
  int device = kDeviceOfCommand;  // whose access counts
};

// Adds the range if it is virtual memory.
void add_touched(std::vector<Touched>& all, const Touched& range);

// Whether a command on that device has access to all that is mapped there. Addresses without memory are not judged.
bool may_touch(Locked&, const std::vector<Touched>& all, const Device& device);

}  // namespace simcuda
