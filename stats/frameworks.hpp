// Frameworks that keep device memory for reuse inside themselves, recognised by the files they have loaded, and what
// makes each show its tensors one by one.
#pragma once
#include <string_view>

#include "stats/snapshot.hpp"

namespace cistern {

// "PyTorch" for the path of a file that only PyTorch's CUDA part loads; null for every other file.
const char* framework_of_file(std::string_view path);

// The facts about the framework of that name; an empty name: there are none.
FrameworkFigures framework_named(std::string_view name);

// Those in this process, each once, in the order in which they were loaded. Takes the dynamic linker's lock: for
// reports only, with no lock held. `environment_variable`: whether a framework's switch is on.
Vector<FrameworkFigures> loaded_frameworks(const char* (*environment_variable)(const char* name));

}  // namespace cistern
