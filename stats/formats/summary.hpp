// What the reports of a run say, in short: the verdict in one sentence, and a text of one screen.
#pragma once
#include <string>

#include "stats/formats/model.hpp"

namespace cistern::formats {

// "5 blocks, 3.8 MiB lost at 3 sites"
std::string verdict(const Run& run);

struct SummaryOptions {
  std::size_t sites_max = 5;
};
std::string summary(const Run& run, const SummaryOptions& options);

}  // namespace cistern::formats
