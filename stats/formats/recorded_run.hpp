// A recording as a report: what all pages, texts and formats of other tools are made of. It has no classes, pools,
// fragmentation and waits: a recording does not know them.
#pragma once
#include "stats/formats/read.hpp"
#include "stats/formats/recording.hpp"

namespace cistern::formats {

// Reads the events twice, and keeps none of them. Throws BadReport.
Report report_of(const Recording& recording, RunReader& stacks);

Run run_of(const Recording& recording);

}  // namespace cistern::formats
