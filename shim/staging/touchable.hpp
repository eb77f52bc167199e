// Whether the program's memory may be touched as a copy will touch it. This is asked before the copy: our fault would
// end the process where the driver's own copy would have returned an error.
#pragma once
#include <cstdint>

#include "pool/staging/cutter.hpp"

namespace cistern {

// Every page of the box, and none besides: true until another thread changes it. They are made resident on the way.
bool may_touch(const staging::Side& side, const staging::Box& box, bool write);

// Whether the page is in memory: one of a file is where it is in the page cache. The system does not tell that of files
// that the user may not write, so these count as resident.
bool is_resident(std::uintptr_t page);
// So many of its pages, or all.
bool is_resident(const staging::Side& side, const staging::Box& box, std::size_t looks);

}  // namespace cistern
