// A rank of a parallel job that is to end with a code that Cistern chose. Open MPI ends a job as soon as one of its
// ranks ends with another code than 0, and kills those that are still at their reports, or about to write what stdio
// holds. So such a rank waits until the others of this machine have ended. If there are several such ranks, the first
// one is the last to end, and ends the job with the code. The others end with their own code.
#pragma once

namespace cistern {

// After the report. `own`: what the process ends with by itself; `chosen`: what it is to end with. Returns what it is
// to end with now.
int code_beside_other_ranks(int own, int chosen);

}  // namespace cistern
