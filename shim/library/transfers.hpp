// The library's transfers (cistern/transfer.h) across a fork. Their calls are declared in library.hpp.
#pragma once

namespace cistern::library {

void transfers_before_fork();
void transfers_after_fork_in_parent();
void transfers_after_fork_in_child();

}  // namespace cistern::library
