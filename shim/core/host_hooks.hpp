// What is done to each call of the malloc family and of operator new and delete: counted, and passed to the
// functions that would have served the program without us.
#pragma once
#include <cstddef>

namespace cistern::host {

#define HOST_CALL(action, result, name, parameters, arguments) result hook_##name parameters;
#include "shim/symbols.def"

// Finds the C++ runtime's operators while the process is young: the look-up takes the loader's lock.
void prepare_operators();

// Whether this thread is inside the allocator or inside a call that we make for ourselves: asked by code that may
// run in a signal handler and would allocate.
bool inside_allocator();

}  // namespace cistern::host
