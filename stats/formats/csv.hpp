// A Run as a table of its samples (RFC 4180), for spreadsheets, databases and data frames.
#pragma once
#include "stats/formats/samples.hpp"

namespace cistern::formats {

// The first line has the names of the columns. A stack is one column: its frames, outermost first, with `;` between.
std::string csv(const Run& run);

}  // namespace cistern::formats
