// Work on command queues, as the library asks for it.
#pragma once
#include "shim/library/kind_memory.hpp"

namespace cistern::opencl {
extern const library::KindQueues queues;
}
