// Finds out whether host memory is a mapped file, for copies of such memory may have a price of their own.
#pragma once
#include <cstdint>

namespace simcuda {

// A file that the system reads into its page cache, so none of tmpfs, and no shared memory without a path.
bool is_mapped_file(uintptr_t address);

}  // namespace simcuda
