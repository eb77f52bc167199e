// The threads of this process that copy host memory to and from bounce buffers, for every kind of device.
#pragma once
#include "pool/staging/copy_crew.hpp"

namespace cistern {

// With as many threads as CISTERN_STAGING_THREADS allows; the first large copy starts them.
staging::CopyCrew& copy_crew();
std::uint64_t copy_crew_busy_ns();

// When exit begins, whether or not there was a copy: nothing is looked up for it.
void stop_copy_crew();

void copy_crew_before_fork();
void copy_crew_after_fork_in_parent();
void copy_crew_after_fork_in_child();

}  // namespace cistern
