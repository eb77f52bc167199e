// The C interface as libcistern.so exports it, and its table, for copies that are linked into programs.
#include "shim/library/library.hpp"
#include "shim/process/environment.hpp"
#include "shim/process/process.hpp"

extern "C" {

#define LIBRARY_CALL(result, name, parameters, arguments) \
  result cistern_##name parameters { return cistern::library::name arguments; }
#include "shim/symbols/library.def"

CISTERN_API const cistern::library::Interface* cistern_interface() { return &cistern::library::own_interface; }

// For the Python package: whether what the program allocates is seen, and not only what it asks of Cistern.
CISTERN_API int cistern_sees_program() {
  return cistern::preloaded.load(std::memory_order_relaxed) && !cistern::switched_off();
}
}
