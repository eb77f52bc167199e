// Whether the program can call the driver where no hook sees it: past the exports, by functions that have none, or
// through a library in front of Cistern. Asked only where copies are held back (gather.hpp).
#pragma once
#include <cstdint>
#include <string_view>

#include "pool/base/internal_memory.hpp"

namespace cistern::cuda {

// Changes whenever a library was loaded or unloaded.
std::uint64_t modules_loaded();
// A library in the global order before Cistern has functions of the driver.
bool another_stands_in_front();
// The first function of the driver that a loaded library is linked to, and that has neither a hook nor is known to be
// harmless; empty: none.
String unseen_function();
// Whether a call of it matters for nothing that is held back: by the name of its export, or as cuGetProcAddress is
// asked for it.
bool is_harmless(std::string_view name);
// `caller` asked dlsym for a name that is not exported here.
void note_looked_up(const char* name, const void* caller);

}  // namespace cistern::cuda
