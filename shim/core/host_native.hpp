// The host allocation functions that would have served the program without us.
//
// Usually the C library's, called through the aliases that nobody can interpose. A program may bring another
// allocator (libjemalloc, libtcmalloc): then all calls go to that one, because it also serves those functions that
// are not interposed (malloc_usable_size on a block of another heap would crash).
#pragma once
#include <malloc.h>
#include <stdio.h>

#include <cstddef>

namespace cistern::host {

struct Native {
#define HOST_CALL(action, result, name, parameters, arguments) result(*name) parameters = nullptr;
#include "shim/symbols.def"
};

// Whether those are the C library's own.
bool native_is_c_library();
// The malloc family. Usable inside the first malloc of the process: look-ups that succeed do not allocate.
const Native& native();

// The operators of the C++ runtime; null members where the process has none in its global order.
const Native& native_operators();
// The same for one that was missing, from a C++ runtime that a plugin brought along. For failed allocations only.
void* late_operator(const char* name);

}  // namespace cistern::host
