// Functions of the driver that have no hook, where copies may be held back (gather.hpp): cuGetProcAddress answers with
// a stub (unhooked.S), which sends what is held and jumps to the function, whatever its parameters are.
#pragma once

namespace cistern::cuda {

// Returns a stub for `real`, or `real` itself where a call of it does not matter for copies that are held.
// `name`: as cuGetProcAddress was asked for it.
void* sending_first(const char* name, void* real);

}  // namespace cistern::cuda
