// A Run as folded stacks: a line `kind;main;...;call BYTES` for each, for flamegraph.pl and its kin.
#pragma once
#include "stats/formats/samples.hpp"

namespace cistern::formats {

std::string folded(const Run& run, Value value);

}  // namespace cistern::formats
