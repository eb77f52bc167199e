// Frameworks that keep device memory for reuse inside themselves, recognised by the files they have loaded.
#pragma once
#include <string_view>

#include "pool/base/internal_memory.hpp"

namespace cistern {

// "PyTorch" for the path of a file that only PyTorch's CUDA part loads; null for every other file.
const char* framework_of_file(std::string_view path);

// Those in this process, each once, in the order in which they were loaded. Takes the dynamic linker's lock: for
// reports only, with no lock held.
Vector<const char*> loaded_frameworks();

}  // namespace cistern
