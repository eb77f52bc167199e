// A Run as a file of speedscope (speedscope.app/file-format-schema.json).
#pragma once
#include "stats/formats/samples.hpp"

namespace cistern::formats {

// A profile for the bytes and one for the blocks of each Value that has some; `value` is the one that is shown first.
std::string speedscope(const Run& run, Value value);

}  // namespace cistern::formats
