// The library's shared buffers (cistern/shared.h) across a fork. Their calls are declared in library.hpp.
#pragma once

namespace cistern::library {

void shared_before_fork();
void shared_after_fork_in_parent();
void shared_after_fork_in_child();

}  // namespace cistern::library
