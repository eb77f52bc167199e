// The answers of the library's calls: the status, and for each thread the driver's or system's own code behind it. Also
// structs of a size that the caller knows.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "cistern/cistern.h"

namespace cistern::library {

// The code behind the last call of this thread.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local int native = 0;

inline cistern_status refused(int code, cistern_status status = CISTERN_DRIVER) {
  native = code;
  return status;
}

// False: it lacks what it must have.
template <class Struct>
bool read_sized(Struct& own, const Struct* given, std::size_t bytes_min) {
  if (!given || given->size < bytes_min) return false;
  memcpy(&own, given, std::min(given->size, sizeof own));
  return true;
}

template <class Struct>
void write_sized(Struct* target, const Struct& own, std::size_t bytes) {
  memcpy(target, &own, std::min(bytes, sizeof own));
}

}  // namespace cistern::library
