// Names and lines for the frames of a report, through libbacktrace (static, maps its own memory).
// Called at report time only. Bounded: after `budget_ms` the remaining frames keep module and offset.
#pragma once
#include "stats/snapshot.hpp"

namespace cistern {

// Fills function, file and line of every frame, inserts frames for inlined calls, and drops leading frames that
// belong to Cistern itself (namespace cistern, cistern_*: the linked library has no module of its own).
void symbolise(Vector<LeakFigures>& leaks, unsigned budget_ms);

}  // namespace cistern
