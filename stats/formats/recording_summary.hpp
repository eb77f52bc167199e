// A recording as the text of one screen: events, memory of each kind at its peak, and the largest call sites then.
#pragma once
#include <string>

#include "stats/formats/recording.hpp"

namespace cistern::formats {

// `sites_max`: how many of the largest at the peak.
std::string recording_summary(const Recording& recording, std::size_t sites_max);

}  // namespace cistern::formats
