// A Run as a table of its samples (RFC 4180), for spreadsheets, databases and data frames.
#pragma once
#include <string>

#include "stats/formats/model.hpp"

namespace cistern::formats {

// The first line has the names of the columns.
std::string csv(const Run& run);

}  // namespace cistern::formats
