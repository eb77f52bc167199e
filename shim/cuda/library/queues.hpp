// Work on streams, as the library asks for it.
#pragma once
#include "shim/library/kind_memory.hpp"

namespace cistern::cuda {

extern const library::KindQueues queues;

// A transfer's copies (transfer_copies.cpp), for that table.
cistern_status make_copy(library::CopyThread& thread, const cistern_copy_request& what);
void end_thread(library::CopyThread& thread);
bool is_final(int code);

}  // namespace cistern::cuda
