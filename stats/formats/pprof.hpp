// A Run as a profile of pprof (profile.proto), as it is before gzip.
#pragma once
#include "stats/formats/samples.hpp"

namespace cistern::formats {

// `value` is the one that pprof shows first.
std::string pprof(const Run& run, Value value);

}  // namespace cistern::formats
