// Functions that Cistern calls on its own account and that the driver lacks: what needs one of them is off. All others
// answer as a failed call does, and whoever calls them lives with that.
#pragma once

namespace cistern::cuda {

// The first one that the driver lacks of those that are needed, or null.
struct Missing {
  const char* for_pools = nullptr;   // memory is kept for reuse
  const char* for_order = nullptr;   // frees are ordered behind events
  const char* for_ranges = nullptr;  // device memory comes from ranges
  // Copies go through bounce buffers, and both ways are timed where the choice is ours.
  const char* for_staging = nullptr;
};
Missing missing_functions();
// One line for each thing that is asked for and off.
void say_missing(const Missing& missing);

}  // namespace cistern::cuda
