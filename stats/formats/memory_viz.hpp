// The GPU memory of a recording as a snapshot of PyTorch (torch.cuda.memory._snapshot), a pickle, for
// docs.pytorch.org/memory_viz and torch.cuda._memory_viz: its last events with their stacks, and the largest live
// blocks.
#pragma once
#include "stats/formats/recording.hpp"

namespace cistern::formats {

struct MemoryVizLimits {
  std::size_t events = 200'000, blocks = 50'000;  // a browser opens some hundred megabytes
};

// Throws BadReport.
std::string memory_viz(const Recording& recording, MemoryVizLimits limits = {});

}  // namespace cistern::formats
