// A Run as a recording of heaptrack (version 3 of its format), as it is before gzip.
#pragma once
#include "stats/formats/read.hpp"
#include "stats/formats/samples.hpp"

namespace cistern::formats {

// The format has a line for each block.
struct TooManyBlocks : BadReport {
  using BadReport::BadReport;
};
constexpr Count kHeaptrackBlocksMax = 50'000'000;

// The blocks of `value`: allocated when the report says, never freed. The kind, and in a Run of several processes the
// process, stand for the function that allocated: innermost. Throws TooManyBlocks.
std::string heaptrack(const Run& run, Value value);

}  // namespace cistern::formats
