// Device memory of shared buffers: made, found and given up in the context that was current when it was made or found.
#pragma once
#include "shim/library/kind_memory.hpp"

namespace cistern::cuda {
extern const library::KindSharing sharing;
}
