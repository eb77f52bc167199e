// The virtual memory that a command touches, and the commands in flight that touch it. It is noted when the command is
// made: from the ranges of copies and memsets, and from the arguments of kernels. Other memory is not noted.
#pragma once
#include <vector>

#include "tests/simcuda/driver/driver.hpp"
#include "tests/simcuda/driver/marker.hpp"

namespace simcuda {

struct Touched {
  static constexpr int kDeviceOfCommand = -1;

  uintptr_t begin;
  size_t bytes;
  bool writes = false;
  int device = kDeviceOfCommand;  // whose access counts
  uint64_t block_id = 0;          // the physical memory there when the command was made; 0: none
};

// Adds the range if it is virtual memory: a part for each mapping.
void add_touched(Locked&, std::vector<Touched>& all, const Touched& range);

// Whether memory that was mapped when the command was made has been unmapped since, and is not back.
bool is_other_memory(Locked&, const std::vector<Touched>& all);

// Whether a command on that device has access to all that is mapped there. Addresses without memory are not judged.
bool may_touch(Locked&, const std::vector<Touched>& all, const Device& device);

// Notes a command that was queued, until it is done.
void note_in_flight(Locked&, const std::vector<Touched>& all, const MarkerPointer& done);
// The number of commands in flight that touch the range.
long long count_in_flight_on(Locked&, uintptr_t begin, size_t bytes);

}  // namespace simcuda
