// The C interface as libcistern.so exports it, and its table, for copies that are linked into programs.
#include "shim/core/library.hpp"

extern "C" {

#define LIBRARY_CALL(result, name, parameters, arguments) \
  result cistern_##name parameters { return cistern::library::name arguments; }
#include "shim/symbols/library.def"

CISTERN_API const cistern::library::Interface* cistern_interface() { return &cistern::library::own_interface; }
}
