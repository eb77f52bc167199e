// What the library itself does on streams and queues beside cistern/queue.h.
#pragma once
#include "shim/core/library.hpp"

namespace cistern::library {

// From a device to memory of the host, which is there when this returns, as all is that was enqueued before on this
// queue.
cistern_status read_and_wait(const cistern_part& target, const cistern_part& source, std::size_t bytes, int device,
                             void* queue);

}  // namespace cistern::library
