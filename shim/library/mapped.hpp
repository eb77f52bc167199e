// Files on a device, chunk by chunk, across a fork. Their calls are declared in library.hpp.
#pragma once

namespace cistern::library {

void mapped_before_fork();
void mapped_after_fork_in_parent();
void mapped_after_fork_in_child();

}  // namespace cistern::library
