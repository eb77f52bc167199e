// The device memory of a recording as RMM logs it (rmm::mr::logging_resource_adaptor), for its replay and for data
// frames: a line for each allocation, free and failed request, in the order of time.
#pragma once
#include <functional>
#include <string_view>

#include "stats/formats/recording.hpp"

namespace cistern::formats {

// Hands the text over in parts: it may be larger than memory. Throws BadReport.
void rmm(const Recording& recording, const std::function<void(std::string_view)>& write);

}  // namespace cistern::formats
