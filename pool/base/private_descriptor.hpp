// Descriptors of ours that stay open for a while: above what programs expect their own to be. Those count on the lowest
// free number, and close all that they know of in a row.
#pragma once
#include <fcntl.h>

#include "pool/base/system_call.hpp"

namespace cistern {

// The lower one is for small descriptor limits.
inline constexpr int kPrivateDescriptors[] = {240, 20};

// `file`, an answer of the kernel's, under such a number; as it is where none is to be had; -1 for an error.
inline int keep_apart(long file) {
  if (file < 0) return -1;
  for (const int lowest : kPrivateDescriptors) {
    const long copy =
        system_call(SYS_fcntl, static_cast<std::uintptr_t>(file), F_DUPFD_CLOEXEC, static_cast<std::uintptr_t>(lowest));
    if (copy < 0) continue;
    system_call(SYS_close, static_cast<std::uintptr_t>(file));
    return static_cast<int>(copy);
  }
  return static_cast<int>(file);
}

}  // namespace cistern
