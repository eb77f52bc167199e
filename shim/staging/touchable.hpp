// Whether the program's memory may be touched as a copy will touch it. This is asked before the copy: our fault would
// end the process where the driver's own copy would have returned an error.
#pragma once
#include "pool/staging/cutter.hpp"

namespace cistern {

// Every page of the box, and none besides: true until another thread changes it. They are made resident on the way.
bool may_touch(const staging::Side& side, const staging::Box& box, bool write);

// Whether a sample of its pages may be resident: those that are read or made for the first time cost more than the
// copy. A page of a file is resident where it is in the page cache. The system does not tell that of files that the
// user may not write, so these count as resident.
bool was_touched(const staging::Side& side, const staging::Box& box);

}  // namespace cistern
