// The host allocation functions that would have served the program without us.
//
// Usually the C library's, from its own table. A program may bring another allocator
// (libjemalloc, libtcmalloc) or a debugger of memory: then they are the next of their names.
#pragma once
#include <malloc.h>
#include <stdio.h>

#include <cstddef>

#include "shim/host/owner.hpp"

namespace cistern::host {

// All names of the malloc family, each with its end, and of the operators: an array of pointers would be relocated at
// every start.
inline constexpr char kNames[] =
#define HOST_OPERATOR(result, name, parameters, arguments)
#define HOST_CALL(action, result, name, parameters, arguments) #name "\0"
#include "shim/symbols/host.def"
    ;
inline constexpr char kOperatorNames[] =
#define HOST_OPERATOR(result, name, parameters, arguments) #name "\0"
#include "shim/symbols/host.def"
    ;

// The C library's other names of the same (reallocarray, __libc_malloc) are null where its malloc serves.
struct Native {
#define HOST_CALL(action, result, name, parameters, arguments) result(*name) parameters = nullptr;
#include "shim/symbols/host.def"
};

// At the start, before there is a second thread: the C library's malloc is begun.
void prepare_native();
void native_before_fork();
void native_after_fork();

// Whether those are the C library's own.
bool native_is_c_library();
// As it was at the first call.
Owner native_owner();
// The malloc family. Usable inside the first malloc of the process: look-ups that succeed do not allocate.
const Native& native();

// The operators of the C++ runtime; null members where the process has none in its global order.
const Native& native_operators();
// The same for one that was missing, from a C++ runtime that a plugin brought along. For failed allocations only.
void* late_operator(const char* name);

}  // namespace cistern::host
