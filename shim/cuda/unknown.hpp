// Functions of the driver that the program asked for by name and that this version does not know (symbols/cuda.def and
// symbols/cuda_known.def have no row of them): those of a later toolkit. Cistern does not see what they do to memory,
// so reports name them.
#pragma once
#include <string_view>

#include "stats/snapshot.hpp"

namespace cistern::cuda {

// Libraries over the driver have lower case there: cudaMalloc, cublasCreate.
constexpr bool looks_like_the_drivers(const char* name) {
  return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

// By its exported name, or by that which cuGetProcAddress is asked for.
bool is_known_function(std::string_view name);

// cuGetProcAddress gave the program a function that has no row. `version`: asked for where the name has one of an older
// version, else 0.
void note_answered(const char* name, int version);
// The program asks dlsym for a name that is not exported here.
void note_asked(const char* name);

void add_unknown_functions(Snapshot& snapshot);

void unknown_before_fork();
void unknown_after_fork();

}  // namespace cistern::cuda
