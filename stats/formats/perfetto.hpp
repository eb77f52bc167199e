// A Run as a trace of Perfetto: for each process counters of live bytes by kind, and heap dumps by kind, of the end and
// of the peak. A recording adds a dump for each moment, and instants of requests that failed. Times are those since
// Cistern was loaded: all processes begin together. A trace of one process also says what time it was then.
#pragma once
#include "stats/formats/samples.hpp"

namespace cistern::formats {

std::string perfetto(const Run& run);

}  // namespace cistern::formats
