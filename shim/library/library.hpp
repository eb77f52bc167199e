// The C interface's functions of this copy of the library, and the table by which another copy in the process calls
// them: one that is linked into a program uses the preloaded one's (shim/linked.cpp).
//
// Room: the C interface: pools, transfers, buffers on both sides, files, shared buffers, queues, devices, plug-ins.
// May include: pool/base, pool, pool/ranges, stats, shim/include/cistern, shim/symbols, shim/process, shim/judging.
#pragma once
#include <cstdint>

#include "cistern/cistern.h"

namespace cistern::library {

#define LIBRARY_CALL(result, name, parameters, arguments) result name parameters;
#include "shim/symbols/library.def"

constexpr std::uint32_t kInterface = 2;  // another number: another shape

struct Interface {
  std::uint32_t number;
  std::uint32_t bytes;  // size of the table; a caller that knows more functions can't use it
  const char* library_version;
#define LIBRARY_CALL(result, name, parameters, arguments) result(*name) parameters;
#include "shim/symbols/library.def"
};

extern const Interface own_interface;

}  // namespace cistern::library
