// The results of the library's calls: the status, and for each thread the driver's or system's own code behind it. Also
// the structs of the interface, which begin with their size as the caller knows it (cistern/cistern.h).
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "cistern/cistern.h"

namespace cistern::library {

// The code that the driver or the system gave behind this thread's last call of the library; 0: none.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local int native = 0;

inline cistern_status refused(int code, cistern_status status = CISTERN_DRIVER) {
  native = code;
  return status;
}

// No struct is as large: a larger size was never set, and nothing is read or written by it.
constexpr std::size_t kStructMax = 4096;

// False: it lacks what it must have, or has a value in a field of a newer version.
template <class Struct>
bool read_sized(Struct& own, const Struct* given, std::size_t bytes_min) {
  if (!given || given->struct_bytes < bytes_min || given->struct_bytes > kStructMax) return false;
  const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof own; i < given->struct_bytes; ++i)
    if (bytes[i]) return false;
  memcpy(&own, given, std::min(given->struct_bytes, sizeof own));
  return true;
}

// Sets all fields behind the size to 0, so that they are 0 where the call fails. False: there are none.
template <class Struct>
bool clear_sized(Struct* target) {
  if (!target) return false;
  const std::size_t bytes = target->struct_bytes, size_bytes = sizeof target->struct_bytes;
  if (bytes <= size_bytes || bytes > kStructMax) return false;
  memset(reinterpret_cast<unsigned char*>(target) + size_bytes, 0, bytes - size_bytes);
  return true;
}

// After clear_sized.
template <class Struct>
void write_sized(Struct* target, Struct own) {
  own.struct_bytes = target->struct_bytes;
  memcpy(target, &own, std::min(own.struct_bytes, sizeof own));
}

}  // namespace cistern::library
