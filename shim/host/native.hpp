// The host allocation functions that would have served the program without us.
//
// Usually the C library's, from its own table. A program may bring another allocator
// (libjemalloc, libtcmalloc) or a debugger of memory: then they are the next of their names.
#pragma once
#include <malloc.h>
#include <stdio.h>

#include <cstddef>
#include <string_view>

#include "shim/host/owner.hpp"

namespace cistern::host {

constexpr bool is_operator(std::string_view name) { return name.starts_with("_Z"); }

// All their names, each with its end: an array of pointers would be relocated at every start. The operators are last.
inline constexpr char kNames[] =
#define HOST_CALL(action, result, name, parameters, arguments) #name "\0"
#include "shim/symbols/host.def"
    ;
constexpr std::size_t first_operator() {
  std::size_t at = 0;
  while (kNames[at] != '_' || kNames[at + 1] != 'Z') ++at;
  return at;
}
inline constexpr const char* kOperatorNames = kNames + first_operator();

// The C library's other names of the same (reallocarray, __libc_malloc) are null where its malloc serves.
struct Native {
#define HOST_CALL(action, result, name, parameters, arguments) result(*name) parameters = nullptr;
#include "shim/symbols/host.def"
};

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
