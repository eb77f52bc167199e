// Sentences that say what to do next, by the figures of a run.
#pragma once
#include <string>
#include <vector>

#include "stats/formats/model.hpp"

namespace cistern::formats {

constexpr std::size_t kHintsMax = 3;
// The most useful first; at most kHintsMax.
std::vector<std::string> hints(const Run& run);

}  // namespace cistern::formats
