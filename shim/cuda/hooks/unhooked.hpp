// Functions of the driver that have no hook, where copies may be held back (gather.hpp): cuGetProcAddress answers with
// a stub (unhooked.S), which sends what is held and jumps to the function, whatever its parameters are.
#pragma once

namespace cistern::cuda {

// What the program gets instead of `real`: a stub, or `real` itself where a call of it matters for nothing that is
// held. `name`: as cuGetProcAddress was asked for it.
void* sending_first(const char* name, void* real);

}  // namespace cistern::cuda
