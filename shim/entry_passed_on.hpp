// Functions of the C library that are passed on, and only observed: the real one, found without the dynamic linker,
// which allocates.
#pragma once
#include <errno.h>

#include <atomic>

#include "shim/process/lookup.hpp"

namespace cistern {

// -1 with ENOSYS where the C library has none.
template <class... Parameters>
int pass_on(std::atomic<int (*)(Parameters...)>& known, const char* name, Parameters... arguments) {
  using Function = int (*)(Parameters...);
  Function real = known.load(std::memory_order_relaxed);
  if (!real) known.store(real = reinterpret_cast<Function>(next_definition(name)), std::memory_order_relaxed);
  if (real) return real(arguments...);
  errno = ENOSYS;
  return -1;
}

}  // namespace cistern
